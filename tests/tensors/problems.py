"""Projection problems for hypothesis: tame and nasty ones from one seed each."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from fedunlearn.tensors.dual import damage

KINDS = ("dense", "sparse", "twins", "copies", "graded", "silent client")
BUDGETS = ("share of the damage", "one for all", "spread", "tiny")


@dataclass(frozen=True)
class Problem:
    base: Tensor
    fishers: list[Tensor]
    budgets: list[float]

    def arrays(self) -> tuple[Any, Any, Any]:
        fishers = torch.stack(self.fishers).double().numpy()
        return self.base.double().numpy(), fishers, np.array(self.budgets)


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    coordinates: st.SearchStrategy[int],
    clients: st.SearchStrategy[int] = st.integers(1, 16),  # noqa: B008
    moderate: bool = False,
) -> Problem:
    """Draw a problem; a moderate one stays within what a general solver can do."""
    m, n = draw(clients), draw(coordinates)
    kind = draw(st.sampled_from(KINDS[:1] + KINDS[3:4] if moderate else KINDS))
    rule = BUDGETS[0] if moderate else draw(st.sampled_from(BUDGETS))
    source = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    exponent = 0.0 if moderate else draw(st.floats(-4.0, 3.0))
    base = torch.randn(n, generator=source) * 10**exponent
    fishers = _fishers(kind, torch.rand(m, n, generator=source), source)
    shares = torch.rand(m, generator=source, dtype=torch.float64).tolist()
    before = [damage(base, fisher) for fisher in fishers]
    return Problem(base, fishers, _budgets(rule, before, shares, low=0.05 if moderate else 0.0))


def _fishers(kind: str, drawn: Tensor, source: torch.Generator) -> list[Tensor]:
    m, n = drawn.shape
    again = torch.rand(m, n, generator=source)
    made = {
        "dense": drawn,
        "sparse": drawn * (again < 0.1),
        "twins": (drawn[:1] + 1e-6 * again) / 1.01,
        "copies": drawn[torch.randint(m, (m,), generator=source)],
        "graded": 10 ** (-12 * drawn),
        "silent client": drawn * (torch.arange(m) > 0)[:, None],
    }[kind]
    return list(made)


def _budgets(rule: str, before: list[float], shares: list[float], low: float) -> list[float]:
    if rule == "share of the damage":
        return [b * (low + s) + 1e-30 for b, s in zip(before, shares, strict=True)]
    if rule == "one for all":
        return [0.3 * sum(before) / len(before) + 1e-30] * len(before)
    if rule == "tiny":
        return [1e-12] * len(before)
    return [10 ** (18 * s - 12) for s in shares]

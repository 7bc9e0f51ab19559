"""Contributions to merge: from literal values, or drawn from a seed."""

from collections.abc import Sequence

import torch

from fedunlearn.merging import Contribution, TensorInputs
from fedunlearn.roles import Role


def client(
    client_id: str,
    task_vector: Sequence[float],
    *,
    role: Role = "forget",
    domain: str = "d",
    fisher: Sequence[float] | None = None,
) -> Contribution:
    """One client of a tensor with a single row; its Fisher is all ones unless given."""
    update = torch.tensor([list(task_vector)])
    raw = torch.ones_like(update) if fisher is None else torch.tensor([list(fisher)])
    return Contribution(client_id, role, domain, update, raw)


def inputs(*contributions: Contribution, alpha: float = 1.0) -> TensorInputs:
    return TensorInputs("w", contributions, alpha=alpha)


def drawn(roles: str, *, shape: tuple[int, int] = (4, 5), seed: int = 0) -> list[Contribution]:
    """A client a letter: ``a`` and ``b`` are forget domains, ``r`` is a retain client."""
    source = torch.Generator().manual_seed(seed)
    return [
        Contribution(
            client_id=f"client-{index}",
            role="retain" if letter == "r" else "forget",
            domain="general" if letter == "r" else letter,
            task_vector=torch.randn(shape, generator=source),
            fisher=torch.rand(shape, generator=source) ** 4 * 1e-5,
        )
        for index, letter in enumerate(roles)
    ]

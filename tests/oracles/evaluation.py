"""Metrics of evaluation by their definitions, slowly, in float64 and without sharing anything."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import torch


def token_log_probs(model: Any, ids: Sequence[int], start: int) -> list[list[float]]:
    """Rows of log p over the vocabulary for the tokens from ``start`` on; one text, no padding."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)])).logits[0].double()
    rows: list[list[float]] = logits.log_softmax(-1)[start - 1 : -1].tolist()
    return rows


def extraction_strength(greedy: Sequence[bool]) -> float:
    """The public loop: the first k from which all is right, else the last one."""
    n = len(greedy)
    for k in range(n):
        if all(greedy[k:]):
            return 1 - k / n
    return 1 - (n - 1) / n


def lowest(values: Sequence[float], share: float) -> float:
    count = max(1, int(len(values) * share))
    return -math.fsum(sorted(values)[:count]) / count


def standardised(rows: Sequence[Sequence[float]], targets: Sequence[int]) -> list[float]:
    found = []
    for row, target in zip(rows, targets, strict=True):
        mean = math.fsum(math.exp(x) * x for x in row)
        variance = math.fsum(math.exp(x) * x * x for x in row) - mean**2
        found.append((row[target] - mean) / math.sqrt(max(variance, 1e-6)))
    return found


def auc(members: Sequence[float], others: Sequence[float]) -> float:
    wins = [1.0 if m < o else 0.5 if m == o else 0.0 for m, o in itertools.product(members, others)]
    return math.fsum(wins) / len(wins)


def ks_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Exact p of the two-sample test for samples of one size.

    The share of interleavings that are at least as far apart, counted in whole numbers.
    """
    n = len(ours)
    points = sorted({*ours, *theirs})
    gaps = [abs(sum(x <= p for x in ours) - sum(x <= p for x in theirs)) for p in points]
    return float(1 - Fraction(_paths(n, n, max(gaps)), math.comb(2 * n, n)))


def _paths(n: int, m: int, gap: int) -> int:
    """Orders of n and m samples whose counts never differ by ``gap`` or more."""

    @cache
    def inside(i: int, j: int) -> int:
        if abs(i - j) >= gap:
            return 0
        if i == j == 0:
            return 1
        return (inside(i - 1, j) if i else 0) + (inside(i, j - 1) if j else 0)

    return inside(n, m)


def gradient_norm(model: Any, ids: Sequence[int], start: int) -> float:
    """Mean over the weights of the norms of the gradient, the last token left out."""
    copy = {
        name: one.detach().double().requires_grad_(True) for name, one in model.named_parameters()
    }
    double = torch.func.functional_call
    logits = double(model, copy, kwargs={"input_ids": torch.tensor([list(ids)])}).logits[0]
    rows = logits.double().log_softmax(-1)[start - 1 : -2]
    targets = torch.tensor(list(ids[start:-1]))
    loss = -rows.gather(-1, targets.unsqueeze(-1)).mean()
    norms = [one.norm() for one in torch.autograd.grad(loss, list(copy.values()))]
    return float(torch.stack(norms).mean())

"""Envelopes, frontiers and intervals by their definitions, slowly."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch


def envelope_at(forget: Sequence[float], kept: Sequence[float], ceiling: float) -> float:
    return max(k for f, k in zip(forget, kept, strict=True) if f <= ceiling)


def envelope_area(forget: Sequence[float], kept: Sequence[float], low: float, high: float) -> float:
    """Mean height: constant between neighbouring forget scores, so read at their middles."""
    cuts = sorted({low, high, *(f for f in forget if low < f < high)})
    total = 0.0
    for left, right in pairwise(cuts):
        total += (right - left) * envelope_at(forget, kept, (left + right) / 2)
    return total / (high - low)


def frontier(forget: Sequence[float], kept: Sequence[float]) -> list[bool]:
    pairs = list(zip(forget, kept, strict=True))
    return [not any((g <= f and k >= h) and (g < f or k > h) for g, k in pairs) for f, h in pairs]


def bootstrap_means(
    scores: np.ndarray, *, resamples: int, generator: torch.Generator
) -> list[list[float]]:
    """One draw after the other, question by question."""
    n, p = scores.shape
    drawn = torch.randint(n, (resamples, n), generator=generator).tolist()
    return [
        [sum(float(scores[question, column]) for question in draw) / n for column in range(p)]
        for draw in drawn
    ]


def wilson_ends(successes: int, n: int, z: float) -> tuple[float, float]:
    """Lowest and highest proportion that the observed one does not reject, on a fine grid."""
    grid = np.linspace(0, 1, 200001)
    fits = np.abs(successes / n - grid) <= z * np.sqrt(grid * (1 - grid) / n) + 1e-12
    return float(grid[fits].min()), float(grid[fits].max())

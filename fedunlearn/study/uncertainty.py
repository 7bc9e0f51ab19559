"""How far a score may be off because only so many questions were asked.

Questions are the only thing that is drawn again here. Other training seeds, other clients and
other prompts move scores too, and no interval of this module covers them.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
_CHUNK = 1 << 22
"""Draws held in memory at once."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval, both ends included."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference with this interval has a sign."""
        return self.low > 0.0 or self.high < 0.0


def wilson(successes: float, n: int, *, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a proportion.

    It is the set of p with ``|successes / n - p| <= z sqrt(p (1 - p) / n)``, so it stays within
    [0, 1] and is sensible at 0 and at n successes, where the usual standard error is 0.

    Args:
        successes: in [0, n].
        n: number of trials, >= 1.
        confidence: in (0, 1).

    Raises:
        ValueError: a number out of its range.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n and n >= 1, got {successes} of {n}")
    share, squared = successes / n, _quantile(confidence) ** 2
    centre = (share + squared / (2 * n)) / (1 + squared / n)
    spread = math.sqrt(squared * (share * (1 - share) / n + squared / (4 * n * n)))
    half = spread / (1 + squared / n)
    # In exact arithmetic the ends enclose the share; at 0 and n one of them equals it.
    return Interval(max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share)))


def resampled_means(scores: Array, *, resamples: int, generator: torch.Generator) -> Array:
    """Draw questions with replacement and average each column over the same draw.

    All columns (settings of merges) see the same questions in a resample, so a difference of
    two columns is a paired bootstrap of that difference.

    Args:
        scores: shape (n questions, p settings).
        resamples: number of draws of n questions.
        generator: source of the draws; the same state gives the same result.

    Returns:
        Shape (resamples, p), float64.
    """
    n = len(scores)
    rows = max(1, _CHUNK // n)
    parts = [
        _counts(min(rows, resamples - start), n, generator) @ scores / n
        for start in range(0, resamples, rows)
    ]
    return np.concatenate(parts)


def percentile_interval(samples: Array, *, confidence: float = 0.95) -> Interval:
    """Return the central share of bootstrap samples; NaN samples are left out.

    Raises:
        ValueError: no sample is left.
    """
    known = samples[~np.isnan(samples)]
    if not known.size:
        raise ValueError("a percentile interval needs at least one sample")
    tail = (1 - confidence) / 2
    low, high = np.quantile(known, [tail, 1 - tail])
    return Interval(float(low), float(high))


def _quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _counts(resamples: int, n: int, generator: torch.Generator) -> Array:
    """How often each question is drawn, shape (resamples, n)."""
    drawn = torch.randint(n, (resamples, n), generator=generator)
    counts = torch.zeros(resamples, n, dtype=torch.float64)
    found: Array = counts.scatter_add_(1, drawn, torch.ones_like(counts)).numpy()
    return found

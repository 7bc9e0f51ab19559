"""How far a score may be off because only so many questions were asked.

Questions are the only thing that is drawn again here. Other training seeds, other clients and
other prompts move scores too, and no interval of this module covers them.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from fedunlearn.metrics.wilson import Interval

Array = NDArray[np.float64]
_CHUNK = 1 << 22
"""Draws held in memory at once."""


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


def _counts(resamples: int, n: int, generator: torch.Generator) -> Array:
    """How often each question is drawn, shape (resamples, n)."""
    drawn = torch.randint(n, (resamples, n), generator=generator)
    counts = torch.zeros(resamples, n, dtype=torch.float64)
    found: Array = counts.scatter_add_(1, drawn, torch.ones_like(counts)).numpy()
    return found

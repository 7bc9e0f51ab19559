"""Observed-step envelopes and their range-normalised areas (FIRM, appendix D.1).

``E(c)`` is the highest kept score among the settings whose forget score is at most the ceiling
``c``: a step function that rises with ``c``. Nothing is interpolated between settings, and
nothing is said of ceilings below a method's lowest or above its highest observed forget score.
The area under it, divided by the width of the range, is the mean kept score over ceilings.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def steps(forget: Array, kept: Array) -> tuple[Array, Array]:
    """Return the envelope's ceilings, rising, and its height from each one on.

    Args:
        forget: forget scores, shape (..., p), lower is more forgotten.
        kept: kept scores, same shape.

    Returns:
        Two arrays of that shape; where ceilings coincide the last height counts.
    """
    order = np.argsort(forget, axis=-1, kind="stable")
    ceilings = np.take_along_axis(forget, order, axis=-1)
    heights = np.maximum.accumulate(np.take_along_axis(kept, order, axis=-1), axis=-1)
    return ceilings, heights


def common_range(first: Array, second: Array) -> tuple[Array, Array]:
    """Return the range of forget scores that two methods both span, each of shape (...).

    Args:
        first: forget scores of one method, shape (..., p).
        second: those of the other, shape (..., q).

    Returns:
        Lower and upper end; the upper is below the lower where the methods have none in common.
    """
    low = np.maximum(first.min(axis=-1), second.min(axis=-1))
    high = np.minimum(first.max(axis=-1), second.max(axis=-1))
    return low, high


def normalised_area(forget: Array, kept: Array, *, low: Array, high: Array) -> Array:
    """Return ``1 / (high - low)`` times the integral of the envelope from ``low`` to ``high``.

    Args:
        forget: forget scores, shape (..., p).
        kept: kept scores, same shape.
        low: shape (...), at least the lowest forget score.
        high: shape (...).

    Returns:
        Shape (...), in the unit of ``kept``; NaN where the range has no width.
    """
    ceilings, heights = steps(forget, kept)
    ends = np.concatenate([ceilings[..., 1:], np.full((*ceilings.shape[:-1], 1), np.inf)], axis=-1)
    bottom, top = low[..., None], high[..., None]
    widths = (np.minimum(ends, top) - np.maximum(ceilings, bottom)).clip(min=0.0)
    width = np.asarray(high - low)
    area = (widths * heights).sum(axis=-1)
    return np.where(width > 0.0, area / np.where(width > 0.0, width, 1.0), np.nan)

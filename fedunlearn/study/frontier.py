"""Who is on the Pareto frontier: no other setting forgets as much and keeps as much."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def on_frontier(forget: Array, kept: Array) -> NDArray[np.bool_]:
    """Say which settings no other one dominates.

    A setting is dominated when another forgets at least as much (a score at most as high) and
    keeps at least as much, and does better in one of the two. Equal settings stand together.

    Args:
        forget: shape (..., p), lower is better.
        kept: same shape, higher is better.

    Returns:
        Same shape.
    """
    order = np.lexsort((-kept, forget), axis=-1)
    below = np.take_along_axis(forget, order, axis=-1)
    above = np.take_along_axis(kept, order, axis=-1)
    best = np.maximum.accumulate(above, axis=-1)
    before = np.concatenate([np.full((*best.shape[:-1], 1), -np.inf), best[..., :-1]], axis=-1)
    free = (above > before) | _repeats(below, above)
    found = np.zeros(free.shape, dtype=np.bool_)
    np.put_along_axis(found, order, _spread(free, _repeats(below, above)), axis=-1)
    return found


def _repeats(below: Array, above: Array) -> NDArray[np.bool_]:
    """Whether a setting equals the one before it in the order."""
    same = (below[..., 1:] == below[..., :-1]) & (above[..., 1:] == above[..., :-1])
    return np.concatenate([np.zeros((*same.shape[:-1], 1), dtype=np.bool_), same], axis=-1)


def _spread(free: NDArray[np.bool_], repeats: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Give a setting that repeats the one before it the same answer."""
    places = np.arange(free.shape[-1])
    origin = np.maximum.accumulate(np.where(repeats, 0, places), axis=-1)
    return np.take_along_axis(free, origin, axis=-1)

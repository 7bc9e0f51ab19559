"""Keeping the largest entries of a tensor, exactly."""

import math

import torch
from torch import Tensor

_SMALL = 1 << 16
"""Up to this many entries the k-th largest is selected directly."""
_SAMPLE = 1 << 18
_MARGIN = 6.0
"""Half-width of the bracket in standard deviations of the sample's rank."""


def top_fraction_mask(values: Tensor, fraction: float) -> Tensor:
    """Mark the largest entries: those >= the max(1, floor(fraction * d))-th largest.

    Entries equal to the threshold are all kept, so more than the fraction may be marked. The
    threshold is an order statistic of the entries themselves, found by selection and not by
    interpolation, for any number of entries.

    Args:
        values: any shape with d >= 1 entries, floating point, without NaN.
        fraction: in (0, 1].

    Returns:
        Bool, same shape.

    Raises:
        ValueError: the fraction is outside (0, 1] or the tensor is empty.
    """
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"the fraction to keep must be in (0, 1], got {fraction}")
    size = values.numel()
    if size == 0:
        raise ValueError("an empty tensor has no largest entry")
    kept = max(1, math.floor(fraction * size))
    if kept == size:
        return torch.ones_like(values, dtype=torch.bool)
    return values >= kth_largest(values.flatten(), kept)


def kth_largest(values: Tensor, k: int) -> Tensor:
    """Return the k-th largest entry, exactly.

    A strided sample gives a narrow bracket that almost surely holds the answer; one pass counts
    what lies above it and gathers what lies inside, and selection in there is cheap. Where the
    sample misled, the side that holds the answer is selected in instead: the sample decides the
    speed, never the result.

    Args:
        values: (d,), floating point, without NaN.
        k: rank from the top, 1 <= k <= d.

    Returns:
        A scalar tensor of the same dtype.
    """
    if values.numel() <= _SMALL:
        return values.kthvalue(values.numel() - k + 1).values
    low, high = _bracket(values, k)
    above = values > high
    num_above = int(above.count_nonzero())
    if k <= num_above:
        return kth_largest(values[above], k)
    inside = values[(values >= low).logical_and_(above.logical_not_())]
    if k <= num_above + inside.numel():
        return _kth_inside(inside, k - num_above)
    return kth_largest(values[values < low], k - num_above - inside.numel())


def _kth_inside(inside: Tensor, k: int) -> Tensor:
    """Select within the bracket; one made of equal entries, as a run of zeros, is answered."""
    largest = inside.max()
    if bool(inside.min() == largest):
        return largest
    return inside.kthvalue(inside.numel() - k + 1).values


def _bracket(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Two entries of a sample between whose ranks the k-th largest is expected."""
    stride = max(1, values.numel() // _SAMPLE) | 1  # odd, so that it is out of step with rows
    sample = values[::stride].sort(descending=True).values
    size, share = sample.numel(), k / values.numel()
    margin = _MARGIN * math.sqrt(size * share * (1 - share)) + 1
    first = max(0, math.floor(share * size - margin))
    last = min(size - 1, math.ceil(share * size + margin))
    return sample[last], sample[first]

"""Finding the k-th largest entry of a tensor, exactly, in one pass over blocks of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedunlearn.tensors.sums import blocks
from fedunlearn.tensors.threads import in_threads

SAMPLE = 1 << 18
"""Entries that a sample should have; fewer cost time, never exactness."""
_MARGIN = 6.0
"""Half-width of the bracket in standard deviations of the sample's rank."""

Flat = NDArray[Any]


@dataclass(frozen=True)
class Order:
    """Two order statistics of one tensor.

    Attributes:
        largest: its largest entry; NaN if any entry is NaN.
        kth: its k-th largest entry.
    """

    largest: float
    kth: float


def kept_count(size: int, fraction: float) -> int:
    """How many of ``size`` entries a fraction keeps: max(1, floor(fraction * size)).

    Raises:
        ValueError: the fraction is outside (0, 1] or there is no entry.
    """
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"the fraction to keep must be in (0, 1], got {fraction}")
    if size == 0:
        raise ValueError("an empty tensor has no largest entry")
    return max(1, math.floor(fraction * size))


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
    kept = kept_count(values.numel(), fraction)
    if kept == values.numel():
        return torch.ones_like(values, dtype=torch.bool)
    return values >= kth_largest(values, kept)


def kth_largest(values: Tensor, k: int) -> float:
    """Return the k-th largest entry, exactly.

    Args:
        values: d entries, any shape, floating point, without NaN.
        k: rank from the top, 1 <= k <= d.
    """
    flat = values.reshape(-1)
    parts = list(blocks(flat.numel()))
    return select(flat.__getitem__, parts, strided(flat), flat.numel(), k).kth


def strided(flat: Tensor) -> Tensor:
    """Take about ``SAMPLE`` entries at equal distances."""
    return flat[:: stride(flat.numel())]


def stride(size: int) -> int:
    """Distance of the entries that :func:`strided` takes; odd, to be out of step with rows."""
    return max(1, size // SAMPLE) | 1


def select(
    read: Callable[[slice], Tensor],
    parts: Sequence[slice],
    sample: Tensor,
    size: int,
    k: int,
) -> Order:
    """Find the largest and the k-th largest entry of a tensor that is read in parts.

    A sample gives a narrow bracket that almost surely holds the answer; one pass counts what lies
    above it and gathers what lies inside, and selection in there is cheap. Where the sample
    misled, a second pass gathers the side that holds the answer instead: the sample decides the
    speed, never the result.

    Args:
        read: gives the entries of a part, in any shape; called from several threads.
        parts: all ``size`` entries together.
        sample: entries of the tensor, or near to such, shape (s,), s >= 1.
        size: number of entries d.
        k: rank from the top, 1 <= k <= d.
    """
    low, high = _bracket(_numpy(sample), size, k)
    counts = list(in_threads(lambda part: _count(read(part), low, high), parts))
    # NumPy's maximum lets a NaN through, whichever part it is in.
    largest = float(np.max([count.largest for count in counts]))
    num_above = sum(count.above for count in counts)
    num_reaching = sum(count.reaching for count in counts)
    if k <= num_above:
        rest = _gathered(read, parts, lambda flat: flat > high)
        return Order(largest, _kth_of(rest, k))
    if k > num_reaching:
        rest = _gathered(read, parts, lambda flat: flat < low)
        return Order(largest, _kth_of(rest, k - num_reaching))
    if low == high:
        return Order(largest, low)
    inside = np.concatenate([count.inside for count in counts])
    return Order(largest, _kth_of(inside, k - num_above))


@dataclass(frozen=True)
class _Count:
    """Of one part: its largest entry, how many are > high and >= low, and those between."""

    largest: float
    above: int
    reaching: int
    inside: Flat


def _count(part: Tensor, low: float, high: float) -> _Count:
    flat = _numpy(part)
    above, reaching = flat > high, flat >= low
    between = np.flatnonzero(reaching > above) if low < high else np.zeros(0, dtype=np.int64)
    return _Count(
        part.amax().item(),
        int(np.count_nonzero(above)),
        int(np.count_nonzero(reaching)),
        flat.take(between),
    )


def _gathered(
    read: Callable[[slice], Tensor], parts: Sequence[slice], chosen: Callable[[Flat], Flat]
) -> Flat:
    flats = in_threads(lambda part: _numpy(read(part)), parts)
    return np.concatenate([flat[chosen(flat)] for flat in flats])


def _kth_of(flat: Flat, k: int) -> float:
    return float(np.partition(flat, flat.size - k)[flat.size - k])


def _bracket(sample: Flat, size: int, k: int) -> tuple[float, float]:
    """Two entries of a sample between whose ranks the k-th largest is expected."""
    count, share = sample.size, k / size
    margin = _MARGIN * math.sqrt(count * share * (1 - share)) + 1
    first = max(0, math.floor(share * count - margin))
    last = min(count - 1, math.ceil(share * count + margin))
    ends = [count - 1 - last, count - 1 - first]
    ordered = np.partition(sample, ends)
    return float(ordered[ends[0]]), float(ordered[ends[1]])


def _numpy(tensor: Tensor) -> Flat:
    """The entries as a flat array in float32, or in float64 where they are."""
    plain = tensor if tensor.dtype == torch.float64 else tensor.float()
    array: Flat = plain.detach().cpu().reshape(-1).numpy()
    return array

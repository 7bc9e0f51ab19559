"""Finding the k-th largest entry of a tensor, exactly, in one pass over blocks of it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BLOCK = 1 << 18
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
    return select(lambda: flat.split(_BLOCK), strided(flat), flat.numel(), k).kth


def strided(flat: Tensor) -> Tensor:
    """Take about ``SAMPLE`` entries at equal distances."""
    return flat[:: stride(flat.numel())]


def stride(size: int) -> int:
    """Distance of the entries that :func:`strided` takes; odd, to be out of step with rows."""
    return max(1, size // SAMPLE) | 1


def select(blocks: Callable[[], Iterable[Tensor]], sample: Tensor, size: int, k: int) -> Order:
    """Find the largest and the k-th largest entry of a tensor that comes in blocks.

    A sample gives a narrow bracket that almost surely holds the answer; one pass counts what lies
    above it and gathers what lies inside, and selection in there is cheap. Where the sample
    misled, a second pass gathers the side that holds the answer instead: the sample decides the
    speed, never the result.

    Args:
        blocks: starts a pass over all ``size`` entries, in blocks of any shape.
        sample: entries of the tensor, or near to such, shape (s,), s >= 1.
        size: number of entries d.
        k: rank from the top, 1 <= k <= d.
    """
    low, high = _bracket(_numpy(sample), size, k)
    found = _Pass(low, high).over(blocks())
    if k <= found.num_above:
        rest = _gathered(blocks(), lambda flat: flat > high)
        return Order(found.largest, _kth_of(rest, k))
    if k > found.num_reaching:
        rest = _gathered(blocks(), lambda flat: flat < low)
        return Order(found.largest, _kth_of(rest, k - found.num_reaching))
    inside = found.inside
    return Order(found.largest, low if inside is None else _kth_of(inside, k - found.num_above))


class _Pass:
    """Counts entries > high and >= low, and gathers those between."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.largest = -math.inf
        self.num_above = self.num_reaching = 0
        self._inside: list[Flat] = []

    def over(self, blocks: Iterable[Tensor]) -> "_Pass":
        for block in blocks:
            flat = _numpy(block)
            self.largest = float(np.maximum(self.largest, block.amax().item()))  # NaN stays
            above, reaching = flat > self.high, flat >= self.low
            self.num_above += int(np.count_nonzero(above))
            self.num_reaching += int(np.count_nonzero(reaching))
            if self.low < self.high:
                self._inside.append(flat.take(np.flatnonzero(reaching > above)))
        return self

    @property
    def inside(self) -> Flat | None:
        """Entries in the bracket; ``None`` where all of them equal its ends."""
        return np.concatenate(self._inside) if self._inside else None


def _gathered(blocks: Iterable[Tensor], chosen: Callable[[Flat], Flat]) -> Flat:
    return np.concatenate([flat[chosen(flat)] for flat in map(_numpy, blocks)])


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

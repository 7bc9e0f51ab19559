"""The k-th largest magnitude over many tensors, exactly, without holding them together.

Non-negative float32 numbers are in the order of their bit patterns. One additive pass counts the
upper 16 bits of every magnitude, which leaves one of 32768 prefixes for the threshold; a second
counts the lower 16 bits below that prefix, which leaves one number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_LOW_BITS = 16
_PREFIXES = 1 << 15
_SUFFIXES = 1 << _LOW_BITS


@dataclass(frozen=True)
class Thresholds:
    """For each of several vectors cut into tensors, its max(1, floor(density * d))-th largest.

    ``while not one.known: one = one.settled(sum of one.survey(tensors) over all tensors)``.

    Attributes:
        density: fraction to keep, in (0, 1]; d counts the entries of all tensors.
        places: upper bits of each threshold, and its rank from the top among the entries that
            share them; known after the first pass.
        values: the thresholds; known after the second.
    """

    density: float
    places: tuple[tuple[int, int], ...] | None = None
    values: tuple[float, ...] | None = None

    @property
    def known(self) -> bool:
        """Both passes are done."""
        return self.values is not None

    def survey(self, tensors: Sequence[Tensor]) -> Tensor:
        """Count bit patterns in one tensor of each vector, float32; (vectors, patterns) int64."""
        if self.places is None:
            rows = [_count(_magnitude_bits(t) >> _LOW_BITS, _PREFIXES) for t in tensors]
        else:
            pairs = zip(tensors, self.places, strict=True)
            rows = [_count_below(_magnitude_bits(t), prefix) for t, (prefix, _) in pairs]
        return torch.stack(rows) if rows else torch.zeros(0, 0, dtype=torch.int64)

    def settled(self, total: Tensor) -> "Thresholds":
        """Take the counts of one pass over all tensors, exact below 2^53 entries."""
        counts = total.to(torch.int64)
        if self.places is None:
            ranks = [max(1, math.floor(self.density * int(row.sum()))) for row in counts]
            return replace(self, places=tuple(map(_find, counts, ranks)))
        found = (_find(row, rank)[0] for row, (_, rank) in zip(counts, self.places, strict=True))
        pairs = zip(self.places, found, strict=True)
        return replace(
            self, values=tuple(_float(high << _LOW_BITS | low) for (high, _), low in pairs)
        )


def _magnitude_bits(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float32).abs().flatten().view(torch.int32)


def _count(patterns: Tensor, size: int) -> Tensor:
    return torch.bincount(patterns, minlength=size)


def _count_below(bits: Tensor, prefix: int) -> Tensor:
    chosen = bits[(bits >> _LOW_BITS) == prefix]
    return _count(chosen & (_SUFFIXES - 1), _SUFFIXES)


def _find(counts: Tensor, rank: int) -> tuple[int, int]:
    """Find the pattern of the ``rank``-th entry from the top, and its rank within the pattern."""
    from_top = counts.flip(0).cumsum(0)
    place = int(torch.searchsorted(from_top, rank))
    above = int(from_top[place - 1]) if place else 0
    return len(counts) - 1 - place, rank - above


def _float(bits: int) -> float:
    return torch.tensor([bits], dtype=torch.int32).view(torch.float32).item()

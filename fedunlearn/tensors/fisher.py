"""What the server does to Fisher diagonals before they become weights (paper section 4.2.1).

========  ====================================================================
symbol    here
========  ====================================================================
G_s       ``fisher``: a pooled forget domain's or a retain client's raw diagonal
F~_s      the result of :meth:`FisherCut.apply`
alpha     fraction of the entries kept
eps_0     stabiliser of the division by the largest entry
========  ====================================================================

The order is pool, normalise, sparsify; the three do not commute. Everything is float32: in
float16 both eps_0 = 1e-8 and the square of a gradient of 1e-4 are zero.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import threshold

from fedunlearn.tensors.selection import kept_count, select, strided
from fedunlearn.tensors.sums import BLOCK, blocks

_NEGLIGIBLE = 2.0**-100
"""Quotients above it are normal float32 numbers, which keep unequal bfloat16 entries apart."""


def pool(stack: Sequence[Tensor]) -> Tensor:
    """Average tensors of one shape (both halves of eq. 2), one at a time.

    Args:
        stack: at least one tensor, any floating dtype; the order fixes the rounding.

    Returns:
        The mean, float32, accumulated in float32; never an alias of an input.

    Raises:
        ValueError: nothing to pool, or the shapes differ.
    """
    if not stack:
        raise ValueError("nothing to pool")
    total = _total(stack)
    return total.div_(len(stack)) if len(stack) > 1 else total


def _total(stack: Sequence[Tensor]) -> Tensor:
    total = stack[0].to(torch.float32, copy=True)
    for tensor in stack[1:]:
        if tensor.shape != total.shape:
            raise ValueError(f"cannot pool shapes {tuple(total.shape)} and {tuple(tensor.shape)}")
        total += tensor
    return total


@dataclass(frozen=True)
class FisherCut:
    """What eq. 3 does to one pooled diagonal, known before its entries are gone through again.

    Attributes:
        largest: its largest entry, by which it is normalised.
        least: its smallest entry that is kept; entries tied with it are kept too.
        eps0: stabiliser of the division.
    """

    largest: float
    least: float
    eps0: float

    @property
    def keeps_any(self) -> bool:
        """Whether anything positive is left."""
        return bool(self._normalise(torch.tensor([self.largest])) > 0.0)

    def apply(self, fisher: Tensor) -> Tensor:
        """Normalise, then sparsify, in place (eq. 3).

        Args:
            fisher: the diagonal, or any entries of it, float32.

        Returns:
            The same tensor, in [0, 1]; all zeros where the whole diagonal is.
        """
        # Entries are compared after the division, which can only make more ties.
        (least,) = self._normalise(torch.tensor([self.least])).tolist()
        return keep_from(self._normalise(fisher), least)

    def sparsify(self, fisher: Tensor) -> Tensor:
        """Sparsify without normalising, in place (the paper's ablation A1)."""
        return keep_from(fisher, self.least)

    def _normalise(self, fisher: Tensor) -> Tensor:
        return fisher.div_(self.largest + self.eps0) if self.largest > 0.0 else fisher.zero_()


def cut_fisher(stack: Sequence[Tensor], *, alpha: float, eps0: float) -> FisherCut:
    """Find how eq. 3 treats the mean of raw diagonals, without holding that mean.

    Args:
        stack: at least one matrix, shape (d_out, d_in), any floating dtype, non-negative.
        alpha: fraction of the entries kept, in (0, 1]: the ``max(1, floor(alpha * d))`` largest
            and those tied with the last of them.
        eps0: stabiliser, >= 0.

    Raises:
        ValueError: a non-finite entry, a parameter out of range, or shapes that differ.
    """
    if not eps0 >= 0.0:
        raise ValueError(f"eps0 must be >= 0, got {eps0}")
    height, width = stack[0].shape[0], stack[0].shape[1:].numel()
    size = height * width
    kept = kept_count(size, alpha)
    sample = _total([strided(fisher.reshape(-1)) for fisher in stack])
    parts = list(blocks(height, max(1, BLOCK // width)))
    order = select(lambda rows: _total([one[rows] for one in stack]), parts, sample, size, kept)
    if not math.isfinite(order.largest):
        raise ValueError("the Fisher diagonal has a NaN or infinite entry")
    # Sums are in the order of their means: the mean of the largest is the largest mean.
    largest, least = torch.tensor([order.largest, order.kth]).div_(len(stack)).tolist()
    return FisherCut(largest, least, eps0)


def keep_largest(fisher: Tensor, fraction: float) -> Tensor:
    """Zero all entries that eq. 3 drops for every alpha up to ``fraction``.

    :func:`cut_fisher` finds the same largest entry and the same threshold in what is left, so
    that nothing changes for whoever processes it. Where the threshold is so small that a division
    could round entries below it up to it, all entries stay.

    Args:
        fisher: raw diagonal, a matrix, any floating dtype, non-negative; left as it is.
        fraction: in (0, 1].

    Returns:
        Same shape and dtype.

    Raises:
        ValueError: as :func:`cut_fisher`.
    """
    cut = cut_fisher([fisher], alpha=fraction, eps0=0.0)
    if cut.least <= cut.largest * _NEGLIGIBLE:
        return fisher.clone()
    return keep_from(fisher.to(torch.float32, copy=True), cut.least).to(fisher.dtype)


def keep_from(values: Tensor, least: float) -> Tensor:
    """Zero what is smaller than ``least``, in place.

    Args:
        values: float32, non-negative.
        least: >= 0, exactly representable in float32.
    """
    below = float(np.nextafter(np.float32(least), np.float32(-1.0)))
    return threshold(values, below, 0.0, inplace=True)

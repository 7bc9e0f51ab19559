"""What the server does to Fisher diagonals before they become weights (paper section 4.2.1).

========  ====================================================================
symbol    here
========  ====================================================================
G_s       ``fisher``: a pooled forget domain's or a retain client's raw diagonal
F~_s      the result of :func:`process_fisher`
alpha     fraction of the entries kept
eps_0     stabiliser of the division by the largest entry
========  ====================================================================

The order is pool, normalise, sparsify; the three do not commute. Everything is float32: in
float16 both eps_0 = 1e-8 and the square of a gradient of 1e-4 are zero.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedunlearn.tensors.selection import top_fraction_mask


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
    total = stack[0].to(torch.float32, copy=True)
    for tensor in stack[1:]:
        if tensor.shape != total.shape:
            raise ValueError(f"cannot pool shapes {tuple(total.shape)} and {tuple(tensor.shape)}")
        total += tensor
    return total.div_(len(stack))


def normalise(fisher: Tensor, eps0: float) -> Tensor:
    """Divide by the largest entry plus ``eps0`` (inner part of eq. 3).

    Args:
        fisher: raw diagonal, any shape, non-negative.
        eps0: stabiliser, >= 0.

    Returns:
        Float32 in [0, 1], same shape; all zeros where the input is all zeros.

    Raises:
        ValueError: an entry is NaN or infinite, or the stabiliser is negative.
    """
    if not eps0 >= 0.0:
        raise ValueError(f"eps0 must be >= 0, got {eps0}")
    raw = fisher.to(torch.float32)
    largest = raw.max().item()
    if not math.isfinite(largest):
        raise ValueError("the Fisher diagonal has a NaN or infinite entry")
    return raw / (largest + eps0) if largest > 0.0 else torch.zeros_like(raw)


def keep_top_fraction(fisher: Tensor, alpha: float) -> Tensor:
    """Zero all but the largest entries (Top of eq. 3).

    Args:
        fisher: any shape, non-negative.
        alpha: fraction kept, in (0, 1]; entries tied at the threshold are all kept.

    Returns:
        Same shape and dtype.

    Raises:
        ValueError: alpha is outside (0, 1].
    """
    return fisher.masked_fill(~top_fraction_mask(fisher, alpha), 0.0)


def process_fisher(fisher: Tensor, *, alpha: float, eps0: float) -> Tensor:
    """Normalise, then sparsify one diagonal that is already pooled (eq. 3).

    Args:
        fisher: raw diagonal, shape (d_out, d_in), non-negative.
        alpha: fraction of the entries kept, in (0, 1].
        eps0: stabiliser, >= 0.

    Returns:
        Float32 in [0, 1], same shape; all zeros for an all-zero input.

    Raises:
        ValueError: a non-finite entry, or a parameter out of range.
    """
    return keep_top_fraction(normalise(fisher, eps0), alpha)

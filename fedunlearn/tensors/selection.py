"""Keeping the largest entries of a tensor, exactly."""

import math

import torch
from torch import Tensor


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
    threshold = values.flatten().kthvalue(size - kept + 1).values
    return values >= threshold

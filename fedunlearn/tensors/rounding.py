"""Weights rounded to 8 bits and back, as pure functions."""

import torch
from torch import Tensor

LEVELS = 127
"""Largest magnitude of a symmetric 8-bit integer; -128 is not used."""


def absmax_int8(weight: Tensor, *, channel: int = 0) -> Tensor:
    """Round to int8 with one scale a channel, and back: W' = s_c round(W / s_c).

    s_c is the largest magnitude of channel c over 127 (absmax); ties go to the even integer. A
    channel of zeros stays zero. As in LLM.int8() (Dettmers et al. 2022) without its outliers.

    Args:
        weight: (d_1, ..., d_n), n >= 1, finite, any floating dtype.
        channel: the dimension with a scale for each of its entries; of a linear layer's
            (d_out, d_in) weight 0.

    Returns:
        Same shape and dtype; computed in float32 and rounded once to the dtype. Before that, no
        entry moves by more than s_c / 2, up to float32 rounding.
    """
    exact = weight.float()
    others = [dim for dim in range(exact.ndim) if dim != channel % exact.ndim]
    largest = exact.abs().amax(dim=others, keepdim=True) if others else exact.abs()
    scale = torch.where(largest > 0, largest / LEVELS, torch.ones_like(largest))
    # below 127 times the smallest float32 the scale itself is rounded, and the quotient may exceed
    steps = (exact / scale).round().clamp(-LEVELS, LEVELS)
    return (steps * scale).to(weight.dtype)

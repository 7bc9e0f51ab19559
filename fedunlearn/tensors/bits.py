"""bfloat16 as unsigned 16-bit integers, because numpy has no bfloat16.

The bit patterns pass unchanged: sign of zero, subnormals, infinities and NaN payloads included.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_INFINITY = 0x7F80
"""Bit pattern of bfloat16's infinity; positive NaNs lie above, finite numbers below."""


def finite_and_non_negative(tensor: Tensor) -> bool:
    """Whether all entries are finite, non-negative and not the negative zero, in one quick pass.

    Raises:
        TypeError: the dtype is not bfloat16.
    """
    if tensor.dtype != torch.bfloat16:
        raise TypeError(f"expected a bfloat16 tensor, got {tensor.dtype}")
    if not tensor.numel():
        return True
    least, largest = tensor.view(torch.int16).aminmax()
    return int(least) >= 0 and int(largest) < _INFINITY


def bf16_to_bits(tensor: Tensor) -> NDArray[np.uint16]:
    """Return the bit patterns of a bfloat16 tensor, same shape, on the CPU.

    Raises:
        TypeError: another dtype; nothing is rounded silently.
    """
    if tensor.dtype != torch.bfloat16:
        raise TypeError(f"expected a bfloat16 tensor, got {tensor.dtype}")
    signed: NDArray[np.int16] = tensor.detach().cpu().contiguous().view(torch.int16).numpy()
    return signed.view(np.uint16).copy()


def bits_to_bf16(bits: NDArray[Any]) -> Tensor:
    """Return the bfloat16 tensor whose bit patterns these are, same shape.

    Args:
        bits: uint16, any strides; copied, so a read-only buffer is fine.

    Raises:
        TypeError: another dtype.
    """
    if bits.dtype != np.uint16:
        raise TypeError(f"expected a uint16 array, got {bits.dtype}")
    return torch.from_numpy(np.array(bits, order="C").view(np.int16)).view(torch.bfloat16)

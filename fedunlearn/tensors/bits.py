"""bfloat16 as unsigned 16-bit integers, because numpy has no bfloat16.

The bit patterns pass unchanged: sign of zero, subnormals, infinities and NaN payloads included.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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

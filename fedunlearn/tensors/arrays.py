"""Tensors as numpy arrays for a wire that has no bfloat16, with the dtype said beside them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedunlearn.tensors.bits import bf16_to_bits

Array = np.ndarray[Any, Any]
_WIRE_DTYPES = {"bfloat16": "uint16", "float16": "float16", "float32": "float32"}


def dtype_name(tensor: Tensor) -> str:
    """PyTorch's name of the dtype, e.g. ``bfloat16``."""
    return str(tensor.dtype).removeprefix("torch.")


def to_array(tensor: Tensor) -> Array:
    """The entries as an array; those of bfloat16 as the uint16 of their bits.

    Where dtype, device and strides allow, the array shares the tensor's memory.
    """
    if tensor.dtype == torch.bfloat16:
        return bf16_to_bits(tensor)
    return tensor.detach().cpu().contiguous().numpy()


def to_tensor(array: object, dtype: object) -> Tensor:
    """Invert :func:`to_array`.

    The tensor lies in the array's memory where that may be written to, which its owner then must
    not do; else in memory of its own.

    Args:
        array: what somebody sent.
        dtype: name of the tensor's dtype, as they say.

    Raises:
        ValueError: the two do not go together, or no tensor has that dtype here; the text is
            the rest of a sentence that begins with the array's name.
    """
    expected = _WIRE_DTYPES.get(dtype) if isinstance(dtype, str) else None
    if expected is None:
        known = ", ".join(_WIRE_DTYPES)
        raise ValueError(f"is said to be {_shown(dtype)}, expected one of {known}")
    if not isinstance(array, np.ndarray) or array.dtype != np.dtype(expected):
        sort = getattr(array, "dtype", type(array).__name__)
        raise ValueError(f"came as {sort}, expected {expected} for a {dtype} tensor")
    if not (array.flags.writeable and array.flags.c_contiguous):
        array = np.array(array, order="C")
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

"""A tensor with many zeros as a bitmap of where it is not zero, and what it is there.

An entry costs one bit, and two bytes more where it is kept: with a tenth kept, a bfloat16 tensor
comes to 16 % of its size. Bits pass unchanged, the sign of a zero included.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class KeptEntries:
    """The entries of a bfloat16 tensor whose bits are not all zero.

    Attributes:
        shape: of the tensor, d entries.
        bitmap: which entries those are, row by row, eight to a byte, the first in the highest
            bit; shape (ceil(d / 8),), uint8.
        bits: their bit patterns, in the same order, shape (n,), uint16.
    """

    shape: tuple[int, ...]
    bitmap: NDArray[Any]
    bits: NDArray[Any]

    @classmethod
    def of(cls, tensor: Tensor) -> "KeptEntries":
        """Take a tensor apart.

        Raises:
            TypeError: it is not bfloat16.
        """
        bits = _bits(tensor)
        kept = bits != 0
        return cls(tuple(tensor.shape), np.packbits(kept), bits[np.flatnonzero(kept)])

    def tensor(self) -> Tensor:
        """Put it together again.

        Raises:
            ValueError: shape, bitmap and entries do not fit together.
        """
        size = torch.Size(self.shape).numel()
        if any(side < 0 for side in self.shape):
            raise ValueError(f"has shape {self.shape}")
        if self.bitmap.dtype != np.uint8 or self.bitmap.shape != (-(-size // 8),):
            raise ValueError(
                f"has a bitmap of {self.bitmap.dtype} and shape {self.bitmap.shape} for {size} "
                "entries"
            )
        if self.bits.dtype != np.uint16 or self.bits.ndim != 1:
            raise ValueError(f"has entries of {self.bits.dtype} and shape {self.bits.shape}")
        places = np.flatnonzero(np.unpackbits(self.bitmap))
        if places.size != self.bits.size:
            raise ValueError(f"has {self.bits.size} entries, its bitmap says {places.size}")
        if places.size and places[-1] >= size:
            raise ValueError(f"has a bitmap of more than its {size} entries")
        dense = np.zeros(size, dtype=np.uint16)
        dense[places] = self.bits
        return torch.from_numpy(dense.view(np.int16)).view(torch.bfloat16).reshape(self.shape)


def kept_bytes(tensor: Tensor) -> int:
    """Bytes that :class:`KeptEntries` of a bfloat16 tensor take."""
    return -(-tensor.numel() // 8) + 2 * int(np.count_nonzero(_bits(tensor)))


def _bits(tensor: Tensor) -> NDArray[Any]:
    if tensor.dtype != torch.bfloat16:
        raise TypeError(f"expected a bfloat16 tensor, got {tensor.dtype}")
    signed: NDArray[Any] = tensor.detach().cpu().contiguous().view(torch.int16).reshape(-1).numpy()
    return signed.view(np.uint16)

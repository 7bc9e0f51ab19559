"""Random numbers from a 256-bit key: whoever lacks the key can neither guess nor replay them.

PyTorch's CPU generator uses 32 bits of any seed, so that noise of one published tensor could be
found by trying them all, and two of 65,000 draws coincide by chance about every other time. Here
AES-256 in counter mode makes the bits; it also is faster. Any part of a sequence is drawn without
what comes before it.
"""

import math
import struct

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

_ZEROS = memoryview(bytes(1 << 19))
"""What is encrypted, for the usual sizes."""
_PER_BLOCK = 4
"""32-bit numbers in one block of the cipher."""
_TO_UNIT = 2.0**-31 * (1 - 2.0**-24)
"""From 32-bit integers into the open interval (-1, 1), whichever way the ends are rounded."""


def keyed_normal(key: bytes, start: int, size: int, *, stream: int = 0) -> Tensor:
    """Draw independent standard normal numbers.

    The inverse of the normal distribution function at uniform numbers of 24 significant bits,
    so beyond 5.4 nothing occurs (one in 15 million would).

    Args:
        key: 32 bytes.
        start: number of the first one in its sequence.
        size: how many.
        stream: which of the key's independent sequences, in [0, 2**32).

    Returns:
        Shape (size,), float32, the caller's to overwrite.
    """
    skipped = start % _PER_BLOCK
    bits = _bits(key, stream, start // _PER_BLOCK, 4 * (size + skipped))
    uniform = bits.view(torch.int32)[skipped:].to(torch.float32).mul_(_TO_UNIT)
    return uniform.erfinv_().mul_(2.0**0.5)


def keyed_uniform(key: bytes, shape: tuple[int, ...], *, stream: int = 0) -> Tensor:
    """Draw independent numbers in [0, 1), float64 with 53 random bits."""
    words = _words(key, stream, shape)
    uniform: Tensor = ((words >> 11) & ((1 << 53) - 1)).to(torch.float64)
    return uniform.mul_(2.0**-53)


def keyed_order(key: bytes, shape: tuple[int, ...], *, stream: int = 0) -> Tensor:
    """Draw a permutation of 0 ... n-1 for every row, shape (..., n), int64.

    Random words are sorted; two of them are equal, and so keep their order, once in 2**65 / n**2.
    """
    return _words(key, stream, shape).argsort(dim=-1, stable=True)


def keyed_normal_64(key: bytes, shape: tuple[int, ...], *, stream: int = 0) -> Tensor:
    """Draw independent standard normal numbers, float64, by Box and Muller."""
    radius, angle = keyed_uniform(key, (2, *shape), stream=stream)
    normal: Tensor = (2 * torch.pi * angle).cos()
    return normal.mul_((-2 * (1 - radius).log()).sqrt())


def _words(key: bytes, stream: int, shape: tuple[int, ...]) -> Tensor:
    return _bits(key, stream, 0, 8 * math.prod(shape)).view(torch.int64).reshape(shape)


def _bits(key: bytes, stream: int, first: int, num_bytes: int) -> Tensor:
    """The key stream of AES-256 from block (stream, first), uint8, writable."""
    start = struct.pack(">IIQ", stream, 0, first)
    plain = _ZEROS[:num_bytes] if num_bytes <= len(_ZEROS) else bytes(num_bytes)
    found = torch.empty(num_bytes + 15, dtype=torch.uint8)
    encryptor = Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()
    encryptor.update_into(plain, found.numpy().data)
    return found[:num_bytes]

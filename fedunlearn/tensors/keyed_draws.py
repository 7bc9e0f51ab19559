"""Random numbers from a 256-bit key: whoever lacks the key can neither guess nor replay them.

PyTorch's CPU generator uses 32 bits of any seed, so that noise of one published tensor could be
found by trying them all, and two of 65,000 draws coincide by chance more often than not. Here
AES-256 in counter mode makes the bits; it also is faster. Numbers come in chunks that are drawn
independently, so that they do not depend on who draws them, nor in what order.
"""

import math
import struct

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

CHUNK = 1 << 16
"""Entries drawn together: few enough to stay in the processor's cache."""
_ZEROS = memoryview(bytes(4 * CHUNK))
_TO_UNIT = 2.0**-31 * (1 - 2.0**-24)
"""From 32-bit integers into the open interval (-1, 1), whichever way the ends are rounded."""


def keyed_normal(key: bytes, stream: int, chunk: int, size: int = CHUNK) -> Tensor:
    """Draw independent standard normal numbers.

    The inverse of the normal distribution function at uniform numbers of 24 significant bits,
    so beyond 5.4 nothing occurs (one in 15 million would). The bits do not depend on threads;
    another processor may round the last one otherwise.

    Args:
        key: 32 bytes.
        stream: which of the key's independent sequences, in [0, 2**32).
        chunk: which part of the sequence, in [0, 2**32).
        size: how many, at most :data:`CHUNK`; the first ones of the chunk.

    Returns:
        Shape (size,), float32, the caller's to overwrite.
    """
    uniform = _bits(key, stream, chunk, 4 * size).view(torch.int32).to(torch.float32)
    normal: Tensor = uniform.mul_(_TO_UNIT).erfinv_()
    return normal.mul_(2.0**0.5)


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
    return (2 * torch.pi * angle).cos().mul_((-2 * (1 - radius).log()).sqrt())


def _words(key: bytes, stream: int, shape: tuple[int, ...]) -> Tensor:
    return _bits(key, stream, 0, 8 * math.prod(shape)).view(torch.int64).reshape(shape)


def _bits(key: bytes, stream: int, chunk: int, num_bytes: int) -> Tensor:
    """The key stream of AES-256 from block (stream, chunk, 0), uint8, writable."""
    start = struct.pack(">IIQ", stream, chunk, 0)
    found = bytearray(num_bytes + 15)
    zeros = _ZEROS[:num_bytes] if num_bytes <= len(_ZEROS) else memoryview(bytes(num_bytes))
    Cipher(algorithms.AES(key), modes.CTR(start)).encryptor().update_into(zeros, found)
    return torch.frombuffer(found, dtype=torch.uint8)[:num_bytes]

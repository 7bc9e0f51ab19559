"""Reads numpy's ``.npy`` bytes from somebody one does not trust.

``numpy.load`` believes the header: it allocates the size announced there before it looks at the
data, and evaluates the header as Python literals. Here the header must have exactly the form that
numpy writes for one of a few plain dtypes, and the bytes that follow must be as many as it says.
The array lies in those bytes; nothing is copied.
"""

import math
import re

import numpy as np

from fedunlearn.tensors.arrays import Array

_MAGIC = b"\x93NUMPY\x01\x00"
_PREFIX = len(_MAGIC) + 2  # a length of two bytes follows
_LONGEST_HEADER = 4096
_HEADER = re.compile(
    r"\{'descr': '(?P<descr><f4|<f2|<u2|\|u1)', 'fortran_order': (?P<fortran>True|False), "
    r"'shape': \((?P<shape>|\d{1,15},|\d{1,15}(?:, \d{1,15}){1,7})\), \} *\n"
)


def read_npy(data: bytes) -> Array:
    """Return the array, in the memory of ``data`` and read-only.

    Args:
        data: version 1.0 of the format, dtype float32, float16, uint16 or uint8, little-endian,
            at most eight dimensions.

    Raises:
        ValueError: anything else, or more or fewer bytes than the header announces.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it is no .npy of version 1.0")
    length = int.from_bytes(data[len(_MAGIC) : _PREFIX], "little")
    start = _PREFIX + length
    if length > _LONGEST_HEADER or start > len(data):
        raise ValueError(f"its header of {length} bytes is too long")
    header = _HEADER.fullmatch(data[_PREFIX:start].decode("ascii", "replace"))
    if header is None:
        raise ValueError(
            "its header is not numpy's own for a float32, float16, uint16 or uint8 array"
        )
    shape = tuple(int(side) for side in header["shape"].split(",") if side.strip())
    dtype = np.dtype(header["descr"])
    announced, there = math.prod(shape) * dtype.itemsize, len(data) - start
    if announced != there:
        raise ValueError(f"its header announces {announced} bytes, {there} are there")
    flat = np.frombuffer(data, dtype=dtype, offset=start)
    return flat.reshape(shape, order="F" if header["fortran"] == "True" else "C")

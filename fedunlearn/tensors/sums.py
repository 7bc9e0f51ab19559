"""Sums in float64 that have the same bits for any number of threads, and blocks to take them in.

PyTorch splits a long reduction between its threads, and so rounds differently on every machine.
Here partial sums have a fixed length that one thread adds up.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fedunlearn.tensors.threads import in_threads

BLOCK = 1 << 18
"""Entries worked on together: a few such buffers stay in a processor's cache."""
_CHUNK = 1 << 12


def blocks(size: int, length: int = BLOCK) -> Iterator[slice]:
    """Cut ``size`` places into slices of ``length``, the last one shorter."""
    for start in range(0, size, length):
        yield slice(start, min(start + length, size))


def widened(tensor: Tensor) -> Tensor:
    """Copy to float64, also what is float64 already: the copy is the caller's to overwrite."""
    return tensor.to(torch.float64, copy=True)


def total(terms: Tensor) -> Tensor:
    """Sum over the last dimension.

    Args:
        terms: shape (..., n), float64.

    Returns:
        Shape (...), float64.
    """
    size = terms.shape[-1]
    even = size - size % _CHUNK
    if even == 0:
        return terms.sum(-1)
    parts = terms[..., :even].reshape(*terms.shape[:-1], -1, _CHUNK).sum(-1)
    parts = total(parts) if parts.shape[-1] > _CHUNK else parts.sum(-1)
    return parts + terms[..., even:].sum(-1)


def sum_of(term: Callable[[slice], Tensor], size: int) -> Tensor:
    """Add up what is computed for each block of ``size`` places, in their order; 0 without any.

    Args:
        term: of a block, a float64 scalar; called from several threads.
        size: number of places.
    """
    found = torch.zeros((), dtype=torch.float64)
    for part in in_threads(term, list(blocks(size))):
        found += part
    return found


def inner_product(one: Tensor, other: Tensor) -> float:
    """Sum of the products of entries, for vectors of one length and any dtype, in float64."""
    return sum_of(lambda part: total(widened(one[part]).mul_(other[part])), one.numel()).item()


def square_sum(tensor: Tensor) -> float:
    """Sum of the squared entries of a tensor of any shape and dtype, in float64."""
    flat = tensor.reshape(-1)
    return sum_of(lambda part: total(widened(flat[part]).square_()), flat.numel()).item()


def norm(tensor: Tensor) -> float:
    """Euclidean norm of the entries, accumulated in float64."""
    return math.sqrt(square_sum(tensor))

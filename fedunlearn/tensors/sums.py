"""Sums in float64 that have the same bits for any number of threads, and blocks to take them in.

PyTorch splits a long reduction between its threads, and so rounds differently on every machine.
Here partial sums have a fixed length that one thread adds up.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

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
    parts = terms[..., :even].unflatten(-1, (-1, _CHUNK)).sum(-1)
    parts = total(parts) if parts.shape[-1] > _CHUNK else parts.sum(-1)
    return parts + terms[..., even:].sum(-1)


def square_sum(tensor: Tensor) -> float:
    """Sum of the squared entries of a tensor of any shape and dtype, accumulated in float64."""
    flat = tensor.reshape(-1)
    found = torch.zeros((), dtype=torch.float64, device=tensor.device)
    for part in blocks(flat.numel()):
        found += total(widened(flat[part]).square_())
    return found.item()


def norm(tensor: Tensor) -> float:
    """Euclidean norm of the entries, accumulated in float64."""
    return square_sum(tensor) ** 0.5

"""LoRA factors to dense task vectors and back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedunlearn.tensors.selection import stride


@dataclass(frozen=True, eq=False)
class LowRank:
    """A task vector as a product that is multiplied out a few rows at a time.

    Attributes:
        left: shape (d_out, r), float32, the adapter's scaling included.
        right: shape (r, d_in), float32.

    Raises:
        ValueError: the factors are not matrices of one rank.
    """

    left: Tensor
    right: Tensor

    def __post_init__(self) -> None:
        left, right = tuple(self.left.shape), tuple(self.right.shape)
        if len(left) != 2 or len(right) != 2 or left[1] != right[0]:
            raise ValueError(f"factors {left} and {right} make no matrix")

    @property
    def shape(self) -> torch.Size:
        """Shape (d_out, d_in) of the product."""
        return torch.Size((self.left.shape[0], self.right.shape[1]))

    def __getitem__(self, rows: slice) -> "LowRank":
        return LowRank(self.left[rows], self.right)

    def dense(self) -> Tensor:
        """Multiply out; float32."""
        return self.left @ self.right

    def sample(self) -> Tensor:
        """Entries at equal distances, as :func:`~fedunlearn.tensors.selection.strided` takes."""
        rows, columns = self.shape
        places = torch.arange(0, rows * columns, stride(rows * columns))
        return (self.left[places // columns] * self.right.T[places % columns]).sum(1)

    @classmethod
    def total(cls, parts: Sequence["LowRank"]) -> "LowRank":
        """Add up: the ranks stand side by side, so that the sum is one product."""
        return cls(
            torch.cat([one.left for one in parts], 1), torch.cat([one.right for one in parts])
        )


def task_vector(A: Tensor, B: Tensor, scaling: float, *, transposed: bool = False) -> Tensor:
    """Return the dense update ``scaling * B @ A`` of one LoRA adapter.

    Args:
        A: down projection, shape (r, d_in), any floating dtype.
        B: up projection, shape (d_out, r), any floating dtype.
        scaling: ``lora_alpha / r``, or ``lora_alpha / sqrt(r)`` with rank-stabilised LoRA.
        transposed: the base weight is stored as (d_in, d_out), PEFT's ``fan_in_fan_out``.

    Returns:
        Float32, contiguous, shape (d_out, d_in), or (d_in, d_out) if transposed.

    Raises:
        ValueError: the factors are not matrices of one rank.
    """
    if A.dim() != 2 or B.dim() != 2 or A.shape[0] != B.shape[1]:
        raise ValueError(
            f"A must be (r, d_in) and B (d_out, r), got {tuple(A.shape)} and {tuple(B.shape)}"
        )
    dense = (B.to(torch.float32) @ A.to(torch.float32)) * scaling
    return dense.T.contiguous() if transposed else dense


def task_vector_norm(A: Tensor, B: Tensor, scaling: float) -> float:
    """Euclidean norm of ``scaling * B @ A`` from the factors' Gram matrices, in float64.

    ``||B A||^2 = trace((B^T B)(A A^T))``: two r x r matrices in place of the dense product.
    """
    left, right = B.double(), A.double()
    square = ((left.T @ left) * (right @ right.T)).sum().item()
    return abs(scaling) * math.sqrt(max(square, 0.0))


def truncate(delta: Tensor, rank: int) -> tuple[Tensor, Tensor, float]:
    """Return the nearest matrix of a given rank, as LoRA factors.

    Solves ``min ||delta - B @ A||_F`` over A of shape (rank, d_in), B of shape (d_out, rank) by
    a singular value decomposition in float64; each factor carries the root of the singular
    values. A rank above what the shape allows is filled up with zeros.

    Args:
        delta: shape (d_out, d_in), any floating dtype.
        rank: >= 1.

    Returns:
        A and B, float32, and the relative error ``||delta - B @ A||_F / ||delta||_F`` of the
        rounded factors, 0 for a zero matrix.

    Raises:
        ValueError: the rank is below 1 or delta is not a matrix.
    """
    if rank < 1 or delta.dim() != 2:
        raise ValueError(f"need a matrix and a rank >= 1, got {tuple(delta.shape)} and rank {rank}")
    exact = delta.to(torch.float64)
    left, singular, right = torch.linalg.svd(exact, full_matrices=False)
    kept = min(rank, singular.numel())
    root = singular[:kept].sqrt()
    A = torch.zeros(rank, delta.shape[1], dtype=torch.float32, device=delta.device)
    B = torch.zeros(delta.shape[0], rank, dtype=torch.float32, device=delta.device)
    A[:kept] = root[:, None] * right[:kept]
    B[:, :kept] = left[:, :kept] * root
    missing = torch.linalg.norm(exact - B.double() @ A.double())
    norm = torch.linalg.norm(exact)
    return A, B, (missing / norm).item() if norm > 0 else 0.0

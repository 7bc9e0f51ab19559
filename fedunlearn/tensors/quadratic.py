"""A concave quadratic over the non-negative orthant, in a handful of variables."""

import torch
from torch import Tensor

PROXIMITY = 1e-13
"""Pull towards the start, relative to the curvature; settles directions without curvature."""


def maximise_quadratic(curvature: Tensor, slope: Tensor, start: Tensor) -> Tensor:
    """Solve ``argmax_{y >= 0} slope' (y - start) - 1/2 (y - start)' curvature (y - start)``.

    A primal active-set method that begins at ``start``: solve for the free variables, walk to
    the first bound met, and free the variable that gains most, until none gains. Variables are
    scaled to unit curvature first. Duplicate or flat directions stay where they started.

    Args:
        curvature: shape (m, m), float64, positive semi-definite with a positive diagonal.
        slope: shape (m,), float64.
        start: shape (m,), float64, >= 0.

    Returns:
        Shape (m,), float64, >= 0, exactly 0 where the bound is met.
    """
    scale = curvature.diagonal().clamp(min=torch.finfo(torch.float64).tiny).rsqrt()
    matrix = curvature * scale[:, None] * scale
    matrix = matrix + PROXIMITY * torch.eye(len(slope), dtype=torch.float64)
    y = start / scale
    target = matrix @ y + slope * scale
    free = y > 0.0
    for _ in range(3 * len(slope) + 3):
        y, free = _settle(matrix, target, y, free)
        gain = torch.where(free, 0.0, (target - matrix @ y) / scale)
        if gain.max().item() <= 1e-15:
            break
        free[gain.argmax()] = True
    return y * scale


def _settle(matrix: Tensor, target: Tensor, y: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """Move to the best point of the free variables, fixing those that meet their bound."""
    free = free.clone()
    while free.any():
        wanted = torch.zeros_like(y)
        wanted[free] = _solve(matrix[free][:, free], target[free])
        blocked = free & (wanted <= 0.0)
        if not blocked.any():
            return wanted, free
        ratios = torch.where(blocked, y / (y - wanted).clamp(min=1e-300), 1.0)
        y = torch.where(free, y + ratios.min() * (wanted - y), 0.0).clamp_(min=0.0)
        free &= ~(blocked & (ratios == ratios.min()))
        y = torch.where(free, y, 0.0)
    return torch.zeros_like(y), free


def _solve(matrix: Tensor, target: Tensor) -> Tensor:
    solution: Tensor = torch.linalg.solve(matrix, target)
    return solution

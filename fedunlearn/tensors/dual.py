"""The dual of the retention projection, on the coordinates where it can act (paper appendix B).

==========  ==========================================================================
symbol      here
==========  ==========================================================================
X_base(j)   ``base``, the scaled base merge (eq. 5)
F~_k(j)     ``fishers[k]``, processed Fisher diagonals (eq. 3)
lambda_k    ``multipliers[k]``, one per retain client, >= 0
b_k(X)      damage, ``1/2 sum_j F~_k(j) X(j)^2`` (eq. 6)
s(j)        shrinkage, ``sum_k lambda_k F~_k(j)``; X(j) = X_base(j) / (1 + s(j)) (eq. 8)
epsilon_k   ``budgets[k]``
==========  ==========================================================================

The dual ``g(lambda) = 1/2 sum_j X_base(j)^2 s(j) / (1 + s(j)) - sum_k lambda_k epsilon_k`` is
concave, with gradient ``b_k(X(lambda)) - epsilon_k`` and negative Hessian eq. 20.
Inputs stay in their own dtype; every sum is float64, over blocks of fixed size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 1 << 15
"""Entries of one tensor that are widened to float64 together."""


def damage(update: Tensor, fisher: Tensor) -> float:
    """Return the second-order damage proxy ``1/2 sum_j F~(j) X(j)^2`` (eq. 6).

    Args:
        update: X, any shape.
        fisher: F~, same shape, non-negative.

    Returns:
        Accumulated in float64.

    Raises:
        ValueError: the shapes differ.
    """
    if update.shape != fisher.shape:
        raise ValueError(f"shapes {tuple(update.shape)} and {tuple(fisher.shape)} differ")
    flat, weights = update.reshape(-1), fisher.reshape(-1)
    total = torch.zeros((), dtype=torch.float64, device=update.device)
    for part in _blocks(flat.numel(), BLOCK):
        total += (flat[part].double().square() * weights[part].double()).sum()
    return 0.5 * total.item()


@dataclass(frozen=True, eq=False)
class Dual:
    """The dual problem restricted to n coordinates and m retain clients.

    Attributes:
        base: shape (n,), float32.
        fishers: shape (m, n), float32, non-negative.
        budgets: shape (m,), float64, positive, on the CPU.
    """

    base: Tensor
    fishers: Tensor
    budgets: Tensor

    def damages(self, multipliers: Tensor) -> Tensor:
        """Return b_k(X(lambda)) for every client, shape (m,), float64, on the CPU."""
        total = torch.zeros(len(self.budgets), dtype=torch.float64, device=self.base.device)
        for base, fishers, shrink in self._shrunk(multipliers):
            total += fishers @ (base / shrink).square_()
        return 0.5 * total.cpu()

    def damages_and_curvature(self, multipliers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the damages and the negative Hessian of the dual (eq. 20), one pass.

        Returns:
            Shapes (m,) and (m, m), float64, on the CPU.
        """
        m = len(self.budgets)
        total = torch.zeros(m, dtype=torch.float64, device=self.base.device)
        curvature = torch.zeros(m, m, dtype=torch.float64, device=self.base.device)
        for base, fishers, shrink in self._shrunk(multipliers):
            squared = (base / shrink).square_()
            total += fishers @ squared
            curvature += (fishers * squared.div_(shrink)) @ fishers.T
        return 0.5 * total.cpu(), curvature.cpu()

    def damage_of(self, client: int, multipliers: Tensor) -> float:
        """Return b_k(X(lambda)) for one client."""
        total = torch.zeros((), dtype=torch.float64, device=self.base.device)
        for base, fishers, shrink in self._shrunk(multipliers):
            total += fishers[client] @ (base / shrink).square_()
        return 0.5 * total.item()

    def recover(self, multipliers: Tensor) -> Tensor:
        """Return X(lambda) of eq. 8 before rounding, shape (n,), float64."""
        parts = [base / shrink for base, _, shrink in self._shrunk(multipliers)]
        return torch.cat(parts)

    def stationarity(self, multipliers: Tensor, update: Tensor) -> float:
        """Return eq. 16's residual of X, largest entry relative to the largest of X_base."""
        worst = torch.zeros((), dtype=torch.float64, device=self.base.device)
        largest = self.base.abs().max().double()
        for part, (base, _, shrink) in zip(self._parts(), self._shrunk(multipliers), strict=True):
            residual = update[part].double() - base + update[part].double() * (shrink - 1.0)
            worst = torch.maximum(worst, residual.abs().max())
        return (worst / largest).item()

    def _shrunk(self, multipliers: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield blocks of X_base, of F~ and of 1 + s, in float64."""
        weights = multipliers.to(self.base.device)
        for part in self._parts():
            fishers = self.fishers[:, part].double()
            yield self.base[part].double(), fishers, (weights @ fishers).add_(1.0)

    def _parts(self) -> Iterator[slice]:
        return _blocks(self.base.numel(), BLOCK)


def restrict(base: Tensor, fishers: Sequence[Tensor], support: Tensor) -> tuple[Tensor, Tensor]:
    """Gather the coordinates where ``support`` is true.

    Args:
        base: any shape.
        fishers: m >= 1 tensors of that shape.
        support: bool, same shape.

    Returns:
        Shapes (n,) and (m, n).
    """
    return base[support], torch.stack([fisher[support] for fisher in fishers])


def _blocks(size: int, length: int) -> Iterator[slice]:
    for start in range(0, size, length):
        yield slice(start, min(start + length, size))

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedunlearn.tensors.sums import BLOCK, blocks, sum_of, total, widened
from fedunlearn.tensors.threads import in_threads

_GRAM_LENGTH = 1 << 12
"""Coordinates summed in one small matrix product."""


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
    found = sum_of(
        lambda part: total(widened(flat[part]).square_().mul_(weights[part])), flat.numel()
    )
    return 0.5 * found.item()


@dataclass(frozen=True, eq=False)
class Solution:
    """X(lambda) and what it comes to.

    Attributes:
        update: eq. 8 before rounding, shape (n,), float64.
        damages: b_k of it, shape (m,), float64.
        stationarity: eq. 16's residual, largest entry relative to the largest of X_base.
    """

    update: Tensor
    damages: Tensor
    stationarity: float


@dataclass(frozen=True, eq=False)
class Dual:
    """The dual problem restricted to n coordinates and m retain clients.

    Attributes:
        base: shape (n,), float32.
        fishers: shape (m, n), float32, non-negative.
        budgets: shape (m,), float64, positive.
    """

    base: Tensor
    fishers: Tensor
    budgets: Tensor

    def damages(self, multipliers: Tensor) -> Tensor:
        """Return b_k(X(lambda)) for every client, shape (m,), float64."""

        def of(part: slice) -> Tensor:
            base, fishers, shrink = self._shrunk(part, multipliers)
            return total(fishers.mul_(base.div_(shrink).square_()))

        return 0.5 * self._sum(of)

    def damages_and_curvature(self, multipliers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the damages and the negative Hessian of the dual (eq. 20), one pass.

        Returns:
            Shapes (m,) and (m, m), float64.
        """

        def of(part: slice) -> Tensor:
            base, fishers, shrink = self._shrunk(part, multipliers)
            weighted = fishers * base.div_(shrink).square_()
            damages = total(weighted)
            return torch.cat([damages[:, None], _products(weighted.div_(shrink), fishers)], dim=1)

        found = self._sum(of)
        return 0.5 * found[:, 0], found[:, 1:]

    def damage_of(self, client: int, multipliers: Tensor) -> float:
        """Return b_k(X(lambda)) for one client."""

        def of(part: slice) -> Tensor:
            base, fishers, shrink = self._shrunk(part, multipliers)
            return total(base.div_(shrink).square_().mul_(fishers[client]))

        return 0.5 * self._sum(of).item()

    def recover(self, multipliers: Tensor) -> Solution:
        """Return X(lambda) of eq. 8 before rounding, with its damages and residual, one pass."""
        update = torch.empty(self.base.shape, dtype=torch.float64)

        def of(part: slice) -> tuple[Tensor, Tensor, Tensor]:
            base, fishers, shrink = self._shrunk(part, multipliers)
            chosen = update[part].copy_(base).div_(shrink)
            residual = stationarity(chosen, base, shrink - 1.0)
            return total(fishers.mul_(chosen.square())), residual, base.abs().max()

        damages, residuals, sizes = zip(*in_threads(of, self._parts()), strict=True)
        worst = torch.stack(residuals).max() / torch.stack(sizes).max()
        return Solution(update, 0.5 * torch.stack(damages).sum(0), worst.item())

    def thinned(self, distance: int) -> "Dual":
        """Return the problem on every ``distance``-th coordinate, its budgets cut in proportion."""
        base = self.base[::distance].contiguous()
        share = base.numel() / self.base.numel()
        return Dual(base, self.fishers[:, ::distance].contiguous(), self.budgets * share)

    def _shrunk(self, part: slice, multipliers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Blocks of X_base, of F~ and of 1 + s, in float64, the caller's to overwrite."""
        fishers = widened(self.fishers[:, part])
        shrink = torch.ones_like(fishers[0])
        for weight, fisher in zip(multipliers.tolist(), fishers, strict=True):
            if weight:
                shrink.add_(fisher, alpha=weight)
        return widened(self.base[part]), fishers, shrink

    def _sum(self, term: Callable[[slice], Tensor]) -> Tensor:
        found = list(in_threads(term, self._parts()))
        return torch.stack(found).sum(0)

    def _parts(self) -> list[slice]:
        length = max(1, BLOCK // 2 // (len(self.budgets) + 3) // _GRAM_LENGTH) * _GRAM_LENGTH
        return list(blocks(self.base.numel(), length))


def stationarity(update: Tensor, base: Tensor, shrinkage: Tensor) -> Tensor:
    """Return eq. 16's residual ``X - X_base + s X``, largest entry, float64.

    Args:
        update: X, shape (n,), float64.
        base: X_base, the same.
        shrinkage: s, the same.
    """
    return (shrinkage * update).add_(update).sub_(base).abs_().max()


def restrict(
    base: Tensor, fishers: Sequence[Tensor], support: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gather the coordinates where ``support`` is true.

    Args:
        base: any shape.
        fishers: m >= 1 tensors of that shape.
        support: bool, same shape; ``None`` for all coordinates.

    Returns:
        Shapes (n,) and (m, n).
    """
    if support is None:
        return base.reshape(-1), torch.stack([fisher.reshape(-1) for fisher in fishers])
    return base[support], torch.stack([fisher[support] for fisher in fishers])


def _products(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right.T`` for (m, n) matrices, (m, m), summed in an order threads do not change."""
    even = left.shape[1] - left.shape[1] % _GRAM_LENGTH
    rest = left[:, even:] @ right[:, even:].T
    if not even:
        return rest
    parts = [
        one[:, :even].reshape(len(one), -1, _GRAM_LENGTH).transpose(0, 1) for one in (left, right)
    ]
    return torch.bmm(parts[0], parts[1].transpose(1, 2)).sum(0) + rest

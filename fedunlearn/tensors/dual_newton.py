"""Exact maximiser of the projection's dual: Newton steps under lambda >= 0.

Everything is in budget units, so that tiny and huge budgets look alike: multipliers
``mu_k = lambda_k epsilon_k``, damages ``c_k = b_k / epsilon_k`` (target 1), curvature
``Q_ki = H_ki / (epsilon_k epsilon_i)`` with H of eq. 20.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedunlearn.tensors.dual import Dual
from fedunlearn.tensors.quadratic import maximise_quadratic

TARGET = 1e-13
"""Residual at which iterating stops; rounding leaves about 1e-15."""
_ENOUGH = 1 << 17
"""Coordinates on which a first guess at the multipliers is made."""


@dataclass(frozen=True, eq=False)
class _Point:
    mu: Tensor
    damages: Tensor
    curvature: Tensor

    @property
    def gradient(self) -> Tensor:
        return self.damages - 1.0

    @property
    def residual(self) -> float:
        """Largest |c_k - 1| over positive multipliers, c_k - 1 over the others."""
        binding = self.mu > 0.0
        return torch.where(binding, self.gradient.abs(), self.gradient.relu()).max().item()


def solve_newton(
    dual: Dual, *, start: Tensor | None = None, limit: int = 200
) -> tuple[Tensor, int]:
    """Maximise the dual over lambda >= 0; multipliers may rise and fall.

    Each step solves a quadratic model of the dual with its sign constraints, so that clients
    enter and leave the active set freely. Two models share the curvature: the secular one
    linearises ``b_k ** -1/2``, which is concave and nearly linear in lambda and so crosses many
    orders of magnitude in a few steps; the plain Newton one always points uphill. A step is
    taken if it halves the best residual so far or if the dual rises all along it, and halved
    until then.

    Args:
        dual: at least one client; every b_k(base) > 0 and every budget finite and positive.
        start: multipliers of a neighbouring problem, shape (m,), float64, >= 0. Where they lead
            nowhere the search begins anew at 0, so that they cost steps but no accuracy.
        limit: most iterations from either start.

    Returns:
        Multipliers lambda, shape (m,), float64, and the number of iterations. The caller
        measures the residuals: after an early stop this is the best point seen.
    """
    origin = torch.zeros_like(dual.budgets)
    if start is None or not start.any():
        start = _guess(dual)
    best, spent = _climb(dual, start * dual.budgets, limit)
    if start.any() and best.residual > TARGET:
        again, more = _climb(dual, origin, limit)
        best, spent = min(again, best, key=lambda point: point.residual), spent + more
    return best.mu / dual.budgets, spent


def _guess(dual: Dual) -> Tensor:
    """Solve a large problem on some of its coordinates; zeros where that is not worth it."""
    distance = dual.base.numel() // _ENOUGH
    if distance < 2:
        return torch.zeros_like(dual.budgets)
    thinned = dual.thinned(distance | 1)  # odd, so that it is out of step with rows
    untouched = thinned.damages(torch.zeros_like(dual.budgets))
    if not bool((untouched > 0.0).all()):
        return torch.zeros_like(dual.budgets)
    return solve_newton(thinned)[0]


def _climb(dual: Dual, mu: Tensor, limit: int) -> tuple[_Point, int]:
    """Iterate from ``mu``; return the best point seen and the number of iterations."""
    best = point = _evaluate(dual, mu)
    for iteration in range(limit):
        if best.residual <= TARGET:
            return best, iteration
        following = _step(dual, point, best.residual)
        if following is None:
            return best, iteration
        point = following
        best = min(best, point, key=lambda p: p.residual)
    return best, limit


def _evaluate(dual: Dual, mu: Tensor) -> _Point:
    damages, curvature = dual.damages_and_curvature(mu / dual.budgets)
    scale = 1.0 / dual.budgets
    return _Point(mu, damages * scale, curvature * scale[:, None] * scale)


def _step(dual: Dual, point: _Point, best_residual: float) -> _Point | None:
    """Return the next point, or ``None`` where rounding leaves no way up."""
    secular = 2.0 * point.damages * (point.damages.sqrt() - 1.0)
    for slope, halvings in ((secular, 4), (point.gradient, 50)):
        direction = maximise_quadratic(point.curvature, slope, point.mu) - point.mu
        for halving in range(halvings):
            trial = _evaluate(dual, point.mu + 0.5**halving * direction)
            if trial.residual <= 0.5 * best_residual or _rises(point, trial, direction):
                return trial
    return None


def _rises(point: _Point, trial: _Point, direction: Tensor) -> bool:
    """Whether the dual, concave along the step, still rises at its end and so all along it."""
    return (point.gradient @ direction).item() > 0.0 and (trial.gradient @ direction).item() >= 0.0

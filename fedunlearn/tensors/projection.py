"""The retention projection: the nearest update that respects every retain client's budget.

``project`` solves, for one tensor (eq. 7)::

    argmin_X 1/2 ||X - X_base||^2   subject to   1/2 sum_j F~_k(j) X(j)^2 <= epsilon_k, all k

The solution shrinks coordinates towards 0 (eq. 8), so a budget that the base merge meets is met
by every candidate and takes no part; the others are solved on the union of their supports.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import torch
from torch import Tensor

from fedunlearn.tensors.dual import Dual, Solution, damage, restrict
from fedunlearn.tensors.dual_bisection import solve_bisection, tolerances
from fedunlearn.tensors.dual_newton import solve_newton

Solver = Literal["newton", "bisection"]
CERTIFIED = 1e-8
"""Largest KKT residual at which the update counts as the nearest one."""


class Status(StrEnum):
    """How a projection ended; the text says what to do where something is left to do."""

    UNCONSTRAINED = "no retain client constrains this tensor"
    UNTOUCHED = "the base merge already meets every budget"
    SOLVED = "nearest update, certified by the KKT residuals"
    FEASIBLE = "every budget is met, but this is not the nearest update; use solver 'newton'"
    UNCERTIFIED = "every budget is met, but the residuals are too large; use a larger epsilon"


@dataclass(frozen=True)
class Stats:
    """How far the multipliers are from optimal, before rounding; all residuals are relative.

    Attributes:
        iterations: Newton steps, or sweeps of the bisection routine.
        stationarity: eq. 16, largest entry over the largest entry of the base.
        feasibility: eq. 17, worst ``b_k / epsilon_k - 1``, at least 0.
        dual_feasibility: eq. 18, most negative multiplier, as a positive number.
        complementarity: eq. 19, worst ``|b_k / epsilon_k - 1|`` over positive multipliers.
    """

    iterations: int = 0
    stationarity: float = 0.0
    feasibility: float = 0.0
    dual_feasibility: float = 0.0
    complementarity: float = 0.0

    @property
    def worst(self) -> float:
        """Largest of the four residuals."""
        return max(self.stationarity, self.feasibility, self.dual_feasibility, self.complementarity)


@dataclass(frozen=True, eq=False)
class Projection:
    """Outcome of :func:`project` for one tensor.

    Attributes:
        update: the delivered update, shape and dtype of the base.
        multipliers: lambda_k per retain client, 0 where the budget does not bind.
        damage_before: b_k of the base per retain client.
        damage_after: b_k of ``update`` as delivered, rounding included.
        status: a :class:`Status`.
        stats: iterations and residuals.
    """

    update: Tensor
    multipliers: tuple[float, ...]
    damage_before: tuple[float, ...]
    damage_after: tuple[float, ...]
    status: str
    stats: Stats

    @property
    def certified(self) -> bool:
        """Whether this is the nearest update within the stated tolerance."""
        return self.stats.worst <= CERTIFIED


def project(
    base: Tensor,
    fishers: Sequence[Tensor],
    budgets: Sequence[float],
    *,
    solver: Solver = "newton",
    start: Sequence[float] | None = None,
) -> Projection:
    """Return the update nearest to ``base`` whose damage is within every budget (eq. 7).

    Args:
        base: scaled base merge, any shape, float32.
        fishers: processed Fisher diagonal of each retain client, same shape, non-negative.
        budgets: epsilon of each retain client, >= 0; infinity means no constraint. Zero is
            accepted only where the base does no damage.
        solver: ``newton`` is exact; ``bisection`` is the paper's increase-only routine, which
            lets an excess of max(1e-4 epsilon, 1e-12) pass.
        start: multipliers of a similar problem, one per client, >= 0, e.g. those of the next
            gamma in a sweep: fewer iterations to the same update, within the same tolerance.
            Ignored by ``bisection``, whose multipliers could not fall back from a high start.

    Returns:
        The outcome; outside the union of the binding clients' supports the update is ``base``
        bit for bit, and where every budget is met already it is ``base`` itself. The budgets are
        checked again on the update as rounded, and a hair is taken off where rounding broke one.

    Raises:
        ValueError: budgets or starting multipliers that are negative, NaN or not one per client;
            differing shapes; a non-finite base; a zero budget that would need an infinite
            multiplier.
    """
    before = _damages(base, fishers, budgets)
    start = _starting_point(start, len(fishers))
    if not fishers:
        return Projection(base, (), (), (), Status.UNCONSTRAINED, Stats())
    binding = [k for k, budget in enumerate(budgets) if before[k] > budget]
    if not binding:
        zeros = (0.0,) * len(fishers)
        return Projection(base, zeros, before, before, Status.UNTOUCHED, Stats())
    chosen = [start[k] for k in binding]
    return _project_onto(
        base, fishers, budgets, before=before, binding=binding, solver=solver, start=chosen
    )


def _damages(
    base: Tensor, fishers: Sequence[Tensor], budgets: Sequence[float]
) -> tuple[float, ...]:
    """Return the base's damages, after checking every input."""
    if len(fishers) != len(budgets):
        raise ValueError(f"{len(fishers)} Fisher diagonals but {len(budgets)} budgets")
    if not all(budget >= 0.0 for budget in budgets):
        raise ValueError(f"budgets must be >= 0, got {tuple(budgets)}")
    before = tuple(damage(base, fisher) for fisher in fishers)
    if not all(math.isfinite(value) for value in before):
        raise ValueError("the base merge or a Fisher diagonal has a NaN or infinite entry")
    if any(value > budget == 0.0 for value, budget in zip(before, budgets, strict=True)):
        raise ValueError("a budget of 0 cannot be met by shrinking; use a positive epsilon")
    return before


def _starting_point(start: Sequence[float] | None, clients: int) -> Sequence[float]:
    """Return the starting multipliers, 0 where none are given, after checking them."""
    if start is None:
        return [0.0] * clients
    if len(start) != clients or not all(0.0 <= value < math.inf for value in start):
        raise ValueError(
            f"starting multipliers must be {clients} finite numbers >= 0, got {tuple(start)}"
        )
    return start


def _project_onto(
    base: Tensor,
    fishers: Sequence[Tensor],
    budgets: Sequence[float],
    *,
    before: tuple[float, ...],
    binding: Sequence[int],
    solver: Solver,
    start: Sequence[float],
) -> Projection:
    chosen = [fishers[k] for k in binding]
    support = _support(chosen)
    limits = torch.tensor([budgets[k] for k in binding], dtype=torch.float64)
    dual = Dual(*restrict(base, chosen, support), limits)
    if solver == "newton":
        values, iterations = solve_newton(dual, start=torch.tensor(start, dtype=torch.float64))
    else:
        values, iterations = solve_bisection(dual)
    solution = dual.recover(values)
    stats = _residuals(dual, values, solution, iterations)
    if solver == "bisection":
        limits = limits + tolerances(limits)
    bounds = dict(zip(binding, limits.tolist(), strict=True))
    update, after = _deliver(base, support, solution.update, fishers, bounds)
    multipliers = dict(zip(binding, values.tolist(), strict=True))
    return Projection(
        update,
        tuple(multipliers.get(k, 0.0) for k in range(len(fishers))),
        before,
        after,
        _status(stats, solver),
        stats,
    )


def _support(fishers: Sequence[Tensor]) -> Tensor | None:
    """Where any of the Fishers is positive; ``None`` where that is everywhere."""
    together = fishers[0]
    for fisher in fishers[1:]:
        together = together + fisher
    support = together > 0.0
    return None if bool(support.all()) else support


def _residuals(dual: Dual, multipliers: Tensor, solution: Solution, iterations: int) -> Stats:
    excess = solution.damages / dual.budgets - 1.0
    return Stats(
        iterations=iterations,
        stationarity=solution.stationarity,
        feasibility=excess.relu().max().item(),
        dual_feasibility=max(0.0, -multipliers.min().item()),
        complementarity=torch.where(multipliers > 0.0, excess.abs(), 0.0).max().item(),
    )


def _status(stats: Stats, solver: Solver) -> Status:
    if stats.worst <= CERTIFIED:
        return Status.SOLVED
    return Status.FEASIBLE if solver == "bisection" else Status.UNCERTIFIED


def _deliver(
    base: Tensor,
    support: Tensor | None,
    exact: Tensor,
    fishers: Sequence[Tensor],
    bounds: Mapping[int, float],
) -> tuple[Tensor, tuple[float, ...]]:
    """Round to the base's dtype, shrinking by powers of two times 2^-26 until budgets hold.

    Returns:
        The update, and its damage to every client.
    """
    update = base if support is None else base.clone()
    hair = 0.0
    while True:
        rounded = (exact * (1.0 - hair) if hair else exact).to(base.dtype)
        if support is None:
            update = rounded.reshape(base.shape)
        else:
            update[support] = rounded
        after = tuple(damage(update, fisher) for fisher in fishers)
        if all(after[k] <= bound for k, bound in bounds.items()):
            return update, after
        hair = min(max(2.0 * hair, 2.0**-26), 1.0)

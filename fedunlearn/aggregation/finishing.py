"""From the raw merge of a weight to its delivered update: scale, projection, account."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedunlearn.aggregation.outcome import TensorReport
from fedunlearn.aggregation.raw import RawTensor
from fedunlearn.errors import InputError
from fedunlearn.tensors.projection import Projection, Solver, project
from fedunlearn.tensors.sums import norm

_RESIDUALS = ("stationarity", "feasibility", "dual_feasibility", "complementarity")


@dataclass(frozen=True, eq=False)
class FinishedTensor:
    """One weight of a merge.

    Attributes:
        name: base parameter name.
        update: dense dW of the weight's shape, float32, contiguous.
        report: how it came about.
        empty: domains and retain clients whose processed Fisher is all zero there.
    """

    name: str
    update: Tensor
    report: TensorReport
    empty: frozenset[str]


def finish_tensor(
    name: str,
    raw: RawTensor,
    *,
    gamma: float,
    budgets: Mapping[str, float],
    solver: Solver,
    start: Mapping[str, Mapping[str, float]],
    owned: bool,
) -> FinishedTensor:
    """Scale (eq. 5) and project (eq. 7) one weight.

    Args:
        name: base parameter name.
        raw: its raw merge.
        gamma: scale.
        budgets: retain client's id to its budget, in the order of the ids.
        solver: of the projection.
        start: base parameter name to retain client's id to the multiplier to start from.
        owned: the raw merge is not needed again and may be overwritten.

    Raises:
        InputError: the scaled update is not finite, or the budgets cannot be met.
    """
    scaled = raw.merged.mul_(gamma) if owned else raw.merged * gamma
    size = raw.norm if gamma == 1.0 else norm(scaled)
    if not math.isfinite(size):
        raise InputError(f"{name!r} at gamma={gamma}: the update is not finite; use a lower gamma")
    near = start.get(name, {})
    entries = raw.retained.of(scaled)
    try:
        done = project(
            entries,
            tuple(raw.retained.fishers),
            tuple(budgets.values()),
            solver=solver,
            start=[near.get(client_id, 0.0) for client_id in budgets],
        )
    except ValueError as fault:
        raise InputError(f"{name!r} at gamma={gamma}: {fault}") from fault
    if done.update is not entries:
        raw.retained.put(scaled, done.update)
        size = norm(scaled)
    return FinishedTensor(name, scaled, _report(done, tuple(budgets), size, raw.norm), raw.empty)


def _report(done: Projection, ids: tuple[str, ...], size: float, raw_size: float) -> TensorReport:
    return TensorReport(
        norm=size,
        raw_norm=raw_size,
        multipliers=dict(zip(ids, done.multipliers, strict=True)),
        damage_before=dict(zip(ids, done.damage_before, strict=True)),
        damage_after=dict(zip(ids, done.damage_after, strict=True)),
        status=str(done.status),
        certified=done.certified,
        iterations=done.stats.iterations,
        residuals={name: getattr(done.stats, name) for name in _RESIDUALS},
    )

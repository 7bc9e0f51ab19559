"""What a merge gives back: the update, and an account of how it came about."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedunlearn.aggregation.epsilon import Epsilon
from fedunlearn.roles import Role

FORMAT_VERSION = 1


@dataclass(frozen=True)
class TensorReport:
    """How the update of one weight came about.

    Attributes:
        norm: Frobenius norm of the update as delivered.
        raw_norm: the same before scaling and projection (gamma = 1).
        multipliers: retain client's id to its dual variable lambda (eq. 8).
        damage_before: retain client's id to the damage (eq. 6) of the scaled raw merge.
        damage_after: the same of the update as delivered.
        status: the projection's outcome in words.
        certified: whether it is the nearest update within the solver's tolerance.
        iterations: of the solver.
        residuals: name to relative KKT residual (eq. 16-19).
    """

    norm: float
    raw_norm: float
    multipliers: dict[str, float]
    damage_before: dict[str, float]
    damage_after: dict[str, float]
    status: str
    certified: bool
    iterations: int
    residuals: dict[str, float]


@dataclass(frozen=True)
class MergedClient:
    """A client whose summary went into a merge."""

    client_id: str
    role: Role
    domain: str
    num_examples: int


@dataclass(frozen=True, kw_only=True)
class MergeReport:
    """The content of ``merge.json``.

    Attributes:
        format_version: of the merge's files.
        method, gamma, alpha, eps0, solver: the settings.
        options: all hyperparameters of the method.
        epsilon: the budget as asked.
        epsilon_resolved: retain client's id to its absolute budget a tensor.
        mean_damage: mean damage of the scaled raw merge over retain clients and tensors; a
            relative budget is a fraction of it.
        base_model: the model to which the update belongs.
        base_model_sha256: hash of what clients started from: its weights, and the expert.
        expert: name of the expert adapter that the update comes on top of; empty: none.
        expert_sha256: its hash; empty: none.
        transposed: weights are stored as (d_in, d_out).
        clients: in the order of their ids.
        facts: what the method found out about the whole model, e.g. ``fulm``'s clusters.
        warnings: what a reader must know, e.g. that nobody's data was protected.
        tensors: base parameter name to its report.
    """

    format_version: int = FORMAT_VERSION
    method: str
    options: dict[str, Any]
    gamma: float
    alpha: float
    eps0: float
    epsilon: Epsilon
    epsilon_resolved: dict[str, float]
    solver: str
    mean_damage: float
    base_model: str
    base_model_sha256: str
    expert: str = ""
    expert_sha256: str = ""
    transposed: bool = False
    clients: tuple[MergedClient, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...]
    tensors: dict[str, TensorReport]


@dataclass(frozen=True)
class MergeResult:
    """A merged update and its report.

    Attributes:
        delta: base parameter name to dense update dW of the weight's shape, float32.
        report: how it came about.
    """

    delta: dict[str, Tensor]
    report: MergeReport

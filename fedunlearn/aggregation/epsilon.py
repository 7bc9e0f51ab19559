"""The retention budget epsilon (FIRM, eq. 7): how it is given, and what it comes to."""

import math
from collections.abc import Callable, Sequence

from fedunlearn.errors import InputError
from fedunlearn.registry import nearest
from fedunlearn.settings import settings


@settings
class RelativeEpsilon:
    """A budget as a fraction of the damage the merge would do without a projection.

    Attributes:
        relative: fraction of the mean damage (eq. 6) of the scaled raw merge, over retain
            clients and tensors; 0.3 in the paper's table 8.
    """

    relative: float

    def __post_init__(self) -> None:
        _require_positive("epsilon.relative", self.relative)
        if math.isinf(self.relative):
            raise ValueError("epsilon.relative must be finite; write epsilon: inf for no budget")


@settings
class PerClientEpsilon:
    """A budget of its own for every retain client.

    Attributes:
        per_client: retain client's id to its budget a tensor; ``inf`` leaves it unconstrained.
    """

    per_client: dict[str, float]

    def __post_init__(self) -> None:
        for client_id, budget in self.per_client.items():
            _require_positive(f"epsilon.per_client.{client_id}", budget)


Epsilon = float | RelativeEpsilon | PerClientEpsilon
"""A budget a tensor for all retain clients alike (``inf``: no projection), or one of the others."""


def check_epsilon(epsilon: Epsilon) -> None:
    """Check a plain budget; the other kinds check themselves.

    Raises:
        ValueError: zero, negative or NaN.
    """
    if isinstance(epsilon, int | float):
        _require_positive("epsilon", epsilon)


def parse_epsilon(text: str) -> Epsilon:
    """Read a budget from the command line.

    Args:
        text: ``inf``, a number such as ``4.1e-5``, ``relative:0.3``, or one budget a client as
            ``retain-0=1e-4,retain-1=inf``.

    Raises:
        InputError: none of these, or not positive.
    """
    try:
        if text.startswith("relative:"):
            return RelativeEpsilon(relative=float(text.removeprefix("relative:")))
        if "=" in text:
            pairs = [pair.rpartition("=") for pair in text.split(",")]
            budgets = {name.strip(): float(budget) for name, _, budget in pairs}
            if len(budgets) < len(pairs):
                raise ValueError("a client has two budgets")
            return PerClientEpsilon(per_client=budgets)
        epsilon = float(text)
        check_epsilon(epsilon)
    except ValueError as fault:
        raise InputError(
            f"epsilon {text!r}: {fault}; expected inf, a number, relative:0.3 or client=number,..."
        ) from None
    return epsilon


def resolve_epsilon(
    epsilon: Epsilon, retain_ids: Sequence[str], *, mean_damage: Callable[[], float]
) -> dict[str, float]:
    """Turn a budget into one absolute number for every retain client.

    Args:
        epsilon: as given.
        retain_ids: the retain clients of the round.
        mean_damage: computes the mean damage without projection, called only for a relative
            budget. Where it is 0 nothing can be damaged, and the budget is infinite.

    Raises:
        InputError: a per-client budget that misses a retain client or names a stranger.
    """
    if isinstance(epsilon, PerClientEpsilon):
        return _resolve_per_client(epsilon.per_client, retain_ids)
    if not retain_ids:
        return {}
    if isinstance(epsilon, RelativeEpsilon):
        budget = epsilon.relative * mean_damage() or math.inf
    else:
        budget = float(epsilon)
    return dict.fromkeys(retain_ids, budget)


def _resolve_per_client(budgets: dict[str, float], retain_ids: Sequence[str]) -> dict[str, float]:
    for stranger in sorted(budgets.keys() - set(retain_ids)):
        hint = nearest(stranger, list(retain_ids))
        raise InputError(f"epsilon.per_client: no retain client {stranger!r}{hint}")
    for missing in sorted(set(retain_ids) - budgets.keys()):
        raise InputError(
            f"epsilon.per_client: retain client {missing!r} has no budget; give it one, or inf"
        )
    return {client_id: budgets[client_id] for client_id in retain_ids}


def _require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be > 0, got {value}")

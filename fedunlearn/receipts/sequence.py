"""What a sequence of requests has come to: taken from the last receipt, never counted anew."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedunlearn.errors import InputError, RunError
from fedunlearn.receipts.checking import verify
from fedunlearn.receipts.document import Previous, Unlearned, file_digest, read_receipt
from fedunlearn.registry import nearest


@dataclass(frozen=True)
class Standing:
    """Where a sequence stands before the next request.

    Attributes:
        previous: the last receipt, and which result of it is gone on with.
        model_sha256: hash of that result.
        damage: retain client to the damage it has taken so far.
        unlearned: steps so far.
    """

    previous: Previous
    model_sha256: str
    damage: Mapping[str, float]
    unlearned: tuple[Unlearned, ...]


def standing(receipt: Path, result: str) -> Standing:
    """Read where a sequence stands, once its last receipt is verified.

    Raises:
        InputError: the receipt cannot be read, or has no such result.
        RunError: it does not hold.
    """
    verify(receipt)
    found, _ = read_receipt(receipt)
    if result not in found.results:
        raise InputError(f"{receipt} has no result {result!r}{nearest(result, [*found.results])}")
    return Standing(
        previous=Previous(sha256=file_digest(receipt), path=str(receipt), result=result),
        model_sha256=found.results[result],
        damage=found.damage.get(result, {}),
        unlearned=found.unlearned,
    )


def check_start(before: Standing | None, sha256: str) -> None:
    """Refuse to call a run the next one of a sequence that starts from something else.

    Raises:
        RunError: the model is not the result before.
    """
    if before is not None and before.model_sha256 != sha256:
        raise RunError(
            f"the model has hash {sha256[:12]}, but {before.previous.result!r} of "
            f"{before.previous.path} ended with {before.model_sha256[:12]}; start with "
            "'fedunlearn run --from', with the same dtype and without an expert"
        )


def remaining(budget: float, spent: Mapping[str, float], clients: list[str]) -> dict[str, float]:
    """What is left of a budget for each client; 0 where it is spent."""
    left = {client: max(0.0, budget - spent.get(client, 0.0)) for client in clients}
    # rounding leaves crumbs that are no budget
    return {client: 0.0 if value <= 1e-12 * budget else value for client, value in left.items()}


def ceilings(
    budget: float | None, spent: Mapping[str, float], clients: list[str], *, refuse: bool
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Limit every retain client's budget to what is left, and say whose is spent.

    Returns:
        Client to ceiling (infinite where it is spent and this is not refused), and warnings.

    Raises:
        RunError: a budget is spent, and ``refuse`` is set.
    """
    if budget is None:
        return {}, ()
    left = remaining(budget, spent, clients)
    gone = [client for client, value in left.items() if value == 0.0]
    said = tuple(
        f"retain client {client!r} has taken damage {spent[client]:.3g} over the requests so far, "
        f"cumulative.budget is {budget:.3g}: it is spent"
        for client in gone
    )
    if gone and refuse:
        remedy = "raise the budget, set cumulative.when_spent=warn, or retrain"
        raise RunError("\n  ".join([*said, remedy]))
    return {client: value or math.inf for client, value in left.items()}, said

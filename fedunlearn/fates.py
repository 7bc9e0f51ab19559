"""Whose data is unlearned and whose is protected, client by client, when a run is over."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedunlearn.report import ClientReport, Fate, MergeReportRow, MissingClient

Kind = Literal["unlearned", "not unlearned", "protected", "not protected"]


@dataclass(frozen=True)
class _Budgets:
    """Merges by whether they hold the damage to a retain client below a budget."""

    within: tuple[str, ...]
    without: tuple[str, ...]


def fates(
    clients: Sequence[ClientReport],
    missing: Sequence[MissingClient],
    merges: Mapping[str, MergeReportRow],
) -> tuple[Fate, ...]:
    """Say what became of every client's data, in the order of their ids.

    That an update is in a merge says what was done, not what was achieved: that is in the scores.

    Args:
        clients: whose summaries were merged.
        missing: who was asked and is not in the merges.
        merges: name to facts.
    """
    found = [*map(_lost, missing), *(_delivered(one, merges) for one in clients)]
    return tuple(sorted(found, key=lambda fate: fate.client_id))


def arm_fates(
    clients: Sequence[Mapping[str, Any]],
    missing: Sequence[MissingClient],
    arms: Mapping[str, Collection[str]],
) -> tuple[Fate, ...]:
    """Say what became of every client's data in a run of copies, in the order of their ids.

    Args:
        clients: ``client_id``, ``role`` and ``domain`` of who took part in the handshake.
        missing: who is not part of every arm.
        arms: name to the ids of the clients of its last round.
    """
    found = {one.client_id: _lost(one) for one in missing}
    for client in clients:
        name = str(client["client_id"])
        inside = [arm for arm, ids in arms.items() if name in ids]
        if name in found or not inside:
            continue
        forgets = client["role"] == "forget"
        detail = (
            f"it unlearned on every copy of {', '.join(inside)}"
            if forgets
            else f"it trained on every copy of {', '.join(inside)}; no budget limits the damage"
        )
        fate: Kind = "unlearned" if forgets else "protected"
        found[name] = Fate(name, str(client["role"]), str(client["domain"]), fate, detail)
    return tuple(found[name] for name in sorted(found))


def fate_lines(found: Sequence[Fate]) -> Iterator[str]:
    """One line of Markdown a client."""
    for one in found:
        yield f"**{one.client_id}** ({one.role}, {one.domain}): {one.fate}; {one.detail}"


def _lost(one: MissingClient) -> Fate:
    fate: Kind = "not protected" if one.role == "retain" else "not unlearned"
    return Fate(one.client_id, one.role, one.domain, fate, one.reason)


def _delivered(one: ClientReport, merges: Mapping[str, MergeReportRow]) -> Fate:
    if one.role == "forget":
        detail = "its update is part of every merge"
        return Fate(one.client_id, one.role, one.domain, "unlearned", detail)
    budgets = _budgets(one.client_id, merges)
    within = f"a budget holds for it in {', '.join(budgets.within)}" if budgets.within else ""
    without = f"nothing constrains {', '.join(budgets.without)}" if budgets.without else ""
    fate: Kind = "protected" if budgets.within else "not protected"
    detail = "; ".join(filter(None, (within, without)))
    return Fate(one.client_id, one.role, one.domain, fate, detail)


def _budgets(client_id: str, merges: Mapping[str, MergeReportRow]) -> _Budgets:
    limits = {name: (row.epsilon or {}).get(client_id, math.inf) for name, row in merges.items()}
    return _Budgets(
        tuple(name for name, limit in limits.items() if math.isfinite(limit)),
        tuple(name for name, limit in limits.items() if not math.isfinite(limit)),
    )

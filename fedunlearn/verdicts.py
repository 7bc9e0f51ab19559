"""Puts comparisons at matched forgetting into words, whoever wins."""

from collections.abc import Sequence

from fedunlearn.matching import CLOSE, Comparison
from fedunlearn.report import Report

EVEN = 0.005
"""Differences smaller than this are called even."""


def verdicts(report: Report) -> list[str]:
    """Say for each pair of merges, at the first one's configured gamma, which keeps more."""
    lines = []
    for row in _pairs(report.comparisons):
        setting = row[0].setting
        configured = report.merges[setting.merge].gamma
        chosen = next((c for c in row if c.setting.gamma == configured), row[0])
        lines.append(_sentence(chosen) + _count(row))
    return lines


def winner(comparison: Comparison) -> str | None:
    """Name the merge that keeps more; ``None`` where the two do not match, are even, or split.

    A merge wins when it is better on retain or on utility and worse on neither.
    """
    if not comparison.close:
        return None
    signs = {_sign(comparison.retain_gain), _sign(comparison.utility_gain)}
    if 1 in signs and -1 not in signs:
        return comparison.setting.merge
    if -1 in signs and 1 not in signs:
        return comparison.other.merge
    return None


def outcome(comparison: Comparison) -> str:
    """Say who wins in a few words."""
    if not comparison.close:
        return "no match"
    if (name := winner(comparison)) is not None:
        return f"{name} wins"
    retain, utility = _sign(comparison.retain_gain), _sign(comparison.utility_gain)
    if retain == utility == 0:
        return "even"
    names = {1: comparison.setting.merge, -1: comparison.other.merge}
    return f"split: {names[retain]} on retain, {names[utility]} on utility"


def _pairs(comparisons: Sequence[Comparison]) -> list[list[Comparison]]:
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        key = comparison.setting.merge, comparison.other.merge
        pairs.setdefault(key, []).append(comparison)
    return list(pairs.values())


def _sentence(comparison: Comparison) -> str:
    setting, other = comparison.setting, comparison.other
    names = f"{setting.merge} (gamma {setting.gamma:g}) and {other.merge} (gamma {other.gamma:g})"
    if not comparison.close:
        return (
            f"{names}: no match, the nearest setting forgets {comparison.largest_gap:.2f} "
            f"differently (at most {CLOSE} counts as matched)"
        )
    kept = [
        f"{kind} {_two(ours)} against {_two(theirs)}"
        for kind, ours, theirs in (
            ("retain", setting.retain, other.retain),
            ("utility", setting.utility, other.utility),
        )
        if ours is not None
    ]
    gap = f"gap {comparison.largest_gap:.2f}"
    return (
        f"{names}, {gap}: {', '.join(kept) or 'nothing kept was measured'}: {outcome(comparison)}"
    )


def _count(pair: Sequence[Comparison]) -> str:
    if len(pair) < 2:
        return ""
    first, second = pair[0].setting.merge, pair[0].other.merge
    winners = [winner(comparison) for comparison in pair]
    matched = sum(comparison.close for comparison in pair)
    return (
        f" (over the sweep, {matched} of {len(pair)} settings match: {first} wins "
        f"{winners.count(first)}, {second} wins {winners.count(second)})"
    )


def _sign(gain: float | None) -> int:
    if gain is None or abs(gain) < EVEN:
        return 0
    return 1 if gain > 0 else -1


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"

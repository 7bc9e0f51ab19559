"""Compares merge methods where they forget equally much (FIRM, appendix D).

A method that forgets more keeps less, so two methods are compared at *matched forgetting*: for a
setting of A the setting of B is taken that minimises the largest absolute gap between their
forgetting scores over the forget sets; ties go to the smaller sum of gaps, then to the lower
gamma. What is kept, on retain and on utility sets, never takes part in the choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CLOSE = 0.05
"""Largest gap at which two settings count as forgetting equally much."""

_DIGITS = 9  # gaps that differ by rounding alone are ties


@dataclass(frozen=True)
class Setting:
    """A merge at one gamma, in one score per group of questions.

    Attributes:
        merge: name of the merge.
        gamma: its scale.
        forget: forget set to score, lower is more forgotten.
        retain: mean over retain sets, ``None`` without one.
        utility: mean over utility sets, ``None`` without one.
    """

    merge: str
    gamma: float
    forget: dict[str, float]
    retain: float | None
    utility: float | None


@dataclass(frozen=True)
class Comparison:
    """A setting, and the setting of another method that forgets most alike.

    Attributes:
        setting: of the method in question.
        other: the matched setting of the other method.
        gaps: per forget set, ``other - setting``.
        largest_gap: largest absolute gap.
        close: the gap is at most :data:`CLOSE`; otherwise the two are not comparable.
        retain_gain: what ``setting`` keeps more than ``other`` on retain.
        utility_gain: the same on utility.
    """

    setting: Setting
    other: Setting
    gaps: dict[str, float]
    largest_gap: float
    close: bool
    retain_gain: float | None
    utility_gain: float | None


def match(target: Setting, candidates: Sequence[Setting]) -> Setting:
    """Return the candidate that forgets most like ``target``, by the rule above.

    Raises:
        ValueError: there is no candidate.
    """
    return min(candidates, key=lambda candidate: _distance(target, candidate))


def compare_all(settings: Sequence[Setting], references: Sequence[str]) -> list[Comparison]:
    """Match every setting of every reference with each other merge.

    Args:
        settings: all that were measured, in any order.
        references: names of the merges to put in question.

    Returns:
        By reference, then other merge, then gamma; in the order of first appearance.
    """
    by_merge: dict[str, list[Setting]] = {}
    for setting in settings:
        by_merge.setdefault(setting.merge, []).append(setting)
    return [
        _compare(setting, match(setting, by_merge[other]))
        for reference in references
        for other in by_merge
        if other != reference and other not in references[: references.index(reference)]
        for setting in sorted(by_merge.get(reference, []), key=lambda s: s.gamma)
        if setting.forget
    ]


def _distance(target: Setting, candidate: Setting) -> tuple[float, float, float]:
    gaps = [abs(gap) for gap in _gaps(target.forget, candidate.forget).values()]
    return round(max(gaps), _DIGITS), round(sum(gaps), _DIGITS), candidate.gamma


def _gaps(target: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: other[name] - target[name] for name in target}


def _compare(setting: Setting, other: Setting) -> Comparison:
    gaps = _gaps(setting.forget, other.forget)
    largest = max(abs(gap) for gap in gaps.values())
    return Comparison(
        setting=setting,
        other=other,
        gaps=gaps,
        largest_gap=largest,
        close=round(largest, _DIGITS) <= CLOSE,
        retain_gain=_difference(setting.retain, other.retain),
        utility_gain=_difference(setting.utility, other.utility),
    )


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second

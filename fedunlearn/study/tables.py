"""A study's tables as rows of text, for the terminal and for Markdown alike."""

from collections.abc import Sequence
from statistics import fmean

from fedunlearn.metrics.wilson import Interval
from fedunlearn.scores import HEADLINE, Metric
from fedunlearn.study.schema import Estimate, Matched, SetEstimates, Study, StudyPoint
from fedunlearn.tables import Table
from fedunlearn.verdicts import outcome, winner

CLEAR_SHARE = 0.1
"""Settings on the frontier in at least this share of resamples are listed."""


def pairs_table(study: Study) -> Table:
    """Every pair of variants in one line: how often they match, and who keeps more then."""
    heads = ("A", "B", "matched", "A wins\n(sure)", "B wins\n(sure)", "retain\nA-B", "utility\nA-B")
    rows = []
    for (first, second), found in _pairs(study).items():
        close = [one for one in found if one.comparison.close]
        rows.append(
            (
                first,
                second,
                f"{len(close)} of {len(found)}",
                _wins(close, first),
                _wins(close, second),
                _mean_gain([one.comparison.retain_gain for one in close]),
                _mean_gain([one.comparison.utility_gain for one in close]),
            )
        )
    return Table(heads, tuple(rows), names=2)


def matched_table(study: Study) -> Table:
    """The matched pairs of settings that forget equally much."""
    heads = ("A", "gamma", "B", "gamma", "largest gap", "retain A-B", "utility A-B", "result")
    rows = [
        (
            c.setting.merge,
            f"{c.setting.gamma:g}",
            c.other.merge,
            f"{c.other.gamma:g}",
            f"{c.largest_gap:.3f}",
            _with_interval(c.retain_gain, one.retain_interval, sign="+"),
            _with_interval(c.utility_gain, one.utility_interval, sign="+"),
            _result(one),
        )
        for one in study.matched
        if (c := one.comparison).close
    ]
    return Table(heads, tuple(rows))


def envelopes_table(study: Study) -> Table:
    """Range-normalised areas of every pair's envelopes."""
    heads = ("A", "B", "ceiling on", "kept", "common range", "area A", "area B", "A-B")
    rows = [
        (
            gap.first,
            gap.second,
            gap.forget_set,
            gap.kept,
            f"{gap.low:.3f} to {gap.high:.3f}",
            f"{gap.first_area:.3f}",
            f"{gap.second_area:.3f}",
            _with_interval(gap.difference, gap.interval, sign="+"),
        )
        for gap in study.envelopes
    ]
    return Table(heads, tuple(rows), names=4)


def frontier_table(study: Study) -> Table:
    """Settings on the frontier, and those that are on it in some of the resamples."""
    heads = ("kept", "variant", "gamma", "forget (mean)", "kept (mean)", "on it", "in resamples")
    rows = [
        (
            one.kept_kind,
            one.variant,
            f"{one.gamma:g}",
            f"{one.forget:.3f}",
            f"{one.kept:.3f}",
            "yes" if one.on_frontier else "no",
            f"{one.share:.0%}",
        )
        for one in sorted(study.standings, key=lambda s: (s.kept_kind, s.forget, s.variant))
        if one.on_frontier or one.share >= CLEAR_SHARE
    ]
    return Table(heads, tuple(rows), names=2)


def ablation_table(study: Study, metric: Metric) -> Table:
    """Every variant at one gamma, set by set, in one metric."""
    base = study.base or {}
    sets = [name for name, one in base.items() if _estimate(one, metric) is not None]
    heads = ("variant", "norm", *(f"{name} ({base[name].kind})" for name in sets))
    rows = [("base", "0", *(_shown(base, name, metric) for name in sets))]
    rows += [
        (point.variant, f"{point.norm:.4g}", *(_shown(point.sets, name, metric) for name in sets))
        for point in ablation_points(study)
    ]
    return Table(heads, tuple(rows))


def ablation_points(study: Study) -> list[StudyPoint]:
    """The variants that were tried at the gamma of the ablation table."""
    return [point for point in study.whole if point.gamma == study.ablation_gamma]


def ablation_metrics(study: Study) -> list[Metric]:
    """Metrics that were measured on some set."""
    return [
        metric
        for metric in HEADLINE
        if any(_estimate(one, metric) is not None for one in (study.base or {}).values())
    ]


def norms_table(study: Study) -> Table:
    """Norm of the update, a row a gamma and a column a variant."""
    norms = {(point.variant, point.gamma): point.norm for point in study.whole}
    gammas = sorted({gamma for _, gamma in norms})
    rows = [
        (
            f"{gamma:g}",
            *(
                f"{norms[name, gamma]:.4g}" if (name, gamma) in norms else "-"
                for name in study.variants
            ),
        )
        for gamma in gammas
    ]
    return Table(("gamma", *study.variants), tuple(rows))


def domains_table(study: Study) -> Table:
    """Norm, and what is kept, as forget domains join."""
    heads = ("variant", "gamma", "domains", "who", "norm", "utility")
    rows = [
        (
            point.variant,
            f"{point.gamma:g}",
            str(len(point.domains)),
            ", ".join(point.domains),
            f"{point.norm:.4g}",
            _utility(study, point),
        )
        for point in sorted(study.growing, key=lambda p: (p.variant, p.gamma, len(p.domains)))
    ]
    return Table(heads, tuple(rows))


def _pairs(study: Study) -> dict[tuple[str, str], list[Matched]]:
    found: dict[tuple[str, str], list[Matched]] = {}
    for one in study.matched:
        key = one.comparison.setting.merge, one.comparison.other.merge
        found.setdefault(key, []).append(one)
    return found


def _wins(close: Sequence[Matched], name: str) -> str:
    """How often a variant wins, and how often of these by more than chance over questions."""
    won = [one for one in close if winner(one.comparison) == name]
    return f"{len(won)} ({sum(one.sure for one in won)})"


def _result(one: Matched) -> str:
    doubt = "" if winner(one.comparison) is None or one.sure else ", not sure"
    return outcome(one.comparison) + doubt


def _mean_gain(gains: Sequence[float | None]) -> str:
    known = [gain for gain in gains if gain is not None]
    return f"{fmean(known):+.3f}" if known else "-"


def _with_interval(value: float | None, interval: Interval | None, *, sign: str = "") -> str:
    if value is None or interval is None:
        return "-"
    return f"{value:{sign}.3f} [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def _shown(sets: dict[str, SetEstimates] | None, name: str, metric: Metric) -> str:
    found = None if sets is None else _estimate(sets[name], metric)
    return "-" if found is None else _with_interval(found.mean, found.interval)


def _utility(study: Study, point: StudyPoint) -> str:
    metric = study.metric
    if point.sets is None or metric is None:
        return "-"
    known = [one for one in point.sets.values() if one.kind == "utility"]
    found = [e.mean for one in known if (e := _estimate(one, metric)) is not None]
    return f"{fmean(found):.3f}" if found else "-"


def _estimate(one: SetEstimates, metric: Metric) -> Estimate | None:
    found: Estimate | None = getattr(one, metric)
    return found

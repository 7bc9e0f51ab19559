"""A report's tables as rows of text, for the terminal and for Markdown alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedunlearn.evaluation.own_data import ClientEvaluation
from fedunlearn.report import Report
from fedunlearn.scores import HEADLINE, Metric, SetReport
from fedunlearn.verdicts import outcome

Sets = Mapping[str, SetReport]
_SHORT: dict[Metric, str] = {
    "rouge_l_recall": "R-L",
    "answer_probability": "prob",
    "choice_accuracy": "MC",
}
_MOST_FORGET_COLUMNS = 3


@dataclass(frozen=True)
class Table:
    """Column heads and rows; so many columns on the left are names, the others numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1


def as_markdown(table: Table) -> str:
    """Render as a pipe table; numbers to the right."""
    rule = ["---" if place < table.names else "---:" for place in range(len(table.columns))]
    lines = [table.columns, rule, *table.rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def bullets(title: str, lines: Sequence[str]) -> list[str]:
    """Render a section of Markdown that lists some lines; nothing where there are none."""
    return [f"## {title}", "\n".join(f"- {line}" for line in lines)] if lines else []


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


@dataclass(frozen=True)
class _Group:
    """Question sets that share a column."""

    title: str
    sets: tuple[str, ...]


def headline(report: Report) -> Table:
    """Base and every merge with its gamma; see :func:`models_table`."""
    labels = {name: (f"{report.merges[name].gamma:g}",) for name in report.scores}
    return models_table(report.base, report.scores, heads=("gamma",), labels=labels)


def models_table(
    base: Sets,
    scores: Mapping[str, Sets],
    *,
    heads: tuple[str, ...],
    labels: Mapping[str, tuple[str, ...]],
) -> Table:
    """Base and other models: a column per forget set, one for retain and one for utility.

    A cell holds ROUGE-L recall, answer probability and multiple-choice accuracy; a column of
    several sets holds their mean. Forget sets with a holdout have a column of PrivLeak each.

    Args:
        base: the base model's scores.
        scores: of each other model.
        heads: of further columns on the left.
        labels: of each other model, what stands in those.
    """
    groups, metrics = _groups(base), _metrics(base)
    legend = " ".join(f"{_SHORT[metric]:>4}" for metric in metrics)
    titles = [f"{group.title}\n{_sizes(base, group)}\n{legend}" for group in groups]
    attacked = [name for name, one in base.items() if one.privleak is not None]
    titles += [f"PrivLeak\n{name}\n%" for name in attacked]
    named = {"base": (tuple("" for _ in heads), base)}
    named |= {name: (labels[name], sets) for name, sets in scores.items()}
    rows = [
        (name, *label, *_cells(sets, groups, metrics), *(_leak(sets[one]) for one in attacked))
        for name, (label, sets) in named.items()
    ]
    return Table(("model", *heads, *titles), tuple(rows))


def _leak(one: SetReport) -> str:
    return "-" if one.privleak is None else f"{one.privleak:+.0f}"


def scores_of(report: Report, metric: Metric) -> Table:
    """One metric, every set on its own, mean and standard error."""
    sets = [name for name, one in report.base.items() if one.mean(metric) is not None]
    heads = [
        f"{name} ({report.base[name].kind}, n={_n(report.base[name], metric)})" for name in sets
    ]
    models = {"base": report.base, **report.scores}
    rows = [
        (model, *(_with_error(measured[name], metric) for name in sets))
        for model, measured in models.items()
    ]
    return Table(("model", *heads), tuple(rows))


def sweep_table(report: Report) -> Table:
    """The leading metric over gamma, a row per merge and gamma."""
    groups = [
        *(_Group(name, (name,)) for name, one in report.base.items() if one.kind == "forget"),
        *_kept_groups(report.base),
    ]
    rows = [
        (
            point.merge,
            f"{point.gamma:g}",
            f"{point.norm:.3g}",
            *(_two(_mean(point.sets, group, report.metric)) for group in groups),
        )
        for point in report.sweep
    ]
    return Table(("merge", "gamma", "norm", *(group.title for group in groups)), tuple(rows))


def matched_table(report: Report) -> Table:
    """Every matched pair of settings."""
    rows = [
        (
            c.setting.merge,
            f"{c.setting.gamma:g}",
            c.other.merge,
            f"{c.other.gamma:g}",
            f"{c.largest_gap:.3f}",
            _signed(c.retain_gain),
            _signed(c.utility_gain),
            outcome(c),
        )
        for c in report.comparisons
    ]
    heads = ("A", "gamma", "B", "gamma", "largest gap", "retain A-B", "utility A-B", "result")
    return Table(heads, tuple(rows))


def clients_table(report: Report) -> Table:
    """Who took part, with what, and how the training went."""
    rows = [
        (
            c.client_id,
            c.role,
            c.domain,
            c.objective,
            str(c.num_examples),
            f"{c.bytes_downloaded:,}",
            f"{c.bytes_uploaded:,}",
            _training(c.training),
        )
        for c in report.clients
    ]
    heads = ("client", "role", "domain", "objective", "examples", "bytes sent to it")
    return Table((*heads, "bytes uploaded", "training"), tuple(rows), names=4)


def own_data_table(report: Report) -> Table:
    """What each client says of one merge on its own data, or why it says nothing."""
    rows = [
        (
            one.client_id,
            one.role,
            one.domain,
            *_own(one, "rouge_l_recall"),
            *_own(one, "answer_probability"),
            f"{one.bytes_sent:,}",
            one.reason or "",
        )
        for one in report.own_data
    ]
    heads = ("client", "role", "domain", "ROUGE-L, base", "merged", "probability, base", "merged")
    return Table((*heads, "bytes sent", ""), tuple(rows), names=3)


def _own(one: ClientEvaluation, metric: str) -> tuple[str, str]:
    if one.scores is None:
        return "-", "-"
    found = [getattr(scores, metric) for scores in (one.scores.base, one.scores.merged)]
    base, merged = (
        "-" if score is None else f"{score.mean:.3f} ± {score.standard_error:.3f}"
        for score in found
    )
    return base, merged


def merges_table(report: Report) -> Table:
    """How each update was made, and what the projection did."""
    rows = [
        (
            name,
            row.method,
            f"{row.gamma:g}",
            f"{row.alpha:g}",
            _epsilon(row.epsilon),
            f"{row.raw_norm:.4g}",
            f"{row.norm:.4g}",
            f"{row.constrained_tensors} of {row.tensors}",
            ", ".join(f"{client} {value:.3g}" for client, value in row.largest_damage.items())
            or "-",
        )
        for name, row in report.merges.items()
    ]
    heads = ("merge", "method", "gamma", "alpha", "epsilon", "norm before", "norm after")
    return Table((*heads, "tensors constrained", "largest damage"), tuple(rows), names=2)


def _groups(base: Sets) -> list[_Group]:
    forget = [name for name, one in base.items() if one.kind == "forget"]
    if len(forget) > _MOST_FORGET_COLUMNS:
        return [_Group("forget (mean)", tuple(forget)), *_kept_groups(base)]
    return [*(_Group(name, (name,)) for name in forget), *_kept_groups(base)]


def _kept_groups(base: Sets) -> list[_Group]:
    groups = []
    for kind in ("retain", "utility"):
        if names := tuple(name for name, one in base.items() if one.kind == kind):
            groups.append(_Group(kind, names))
    return groups


def _metrics(base: Sets) -> list[Metric]:
    return [
        metric for metric in HEADLINE if any(one.mean(metric) is not None for one in base.values())
    ]


def _cells(sets: Sets, groups: Sequence[_Group], metrics: Sequence[Metric]) -> list[str]:
    return [
        " ".join(f"{_two(_mean(sets, group, metric)):>4}" for metric in metrics) for group in groups
    ]


def _mean(sets: Sets, group: _Group, metric: Metric) -> float | None:
    values = [value for name in group.sets if (value := sets[name].mean(metric)) is not None]
    return fmean(values) if values else None


def _sizes(base: Sets, group: _Group) -> str:
    """Say how many questions stand behind a column."""
    counts = {sum(_n(base[name], metric) for name in group.sets) for metric in HEADLINE}
    return "n=" + "/".join(map(str, sorted(counts - {0}, reverse=True)))


def _n(one: SetReport, metric: Metric) -> int:
    score = getattr(one, metric)
    return 0 if score is None else int(score.n)


def _with_error(one: SetReport, metric: Metric) -> str:
    score = getattr(one, metric)
    if score is None:
        return "-"
    error = "" if score.standard_error is None else f" ± {score.standard_error:.3f}"
    return f"{score.mean:.3f}{error}"


def _training(facts: Mapping[str, object]) -> str:
    shown = {key: value for key, value in facts.items() if isinstance(value, int | float)}
    return ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in shown.items()
    )


def _epsilon(budgets: Mapping[str, float] | None) -> str:
    values = sorted(set((budgets or {}).values()))
    return "none" if not values else ", ".join(f"{value:.3g}" for value in values)


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"

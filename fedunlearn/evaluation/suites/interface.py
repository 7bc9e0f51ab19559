"""A suite: sample sets, and how their records become results; and the registry of suites."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from fedunlearn.errors import InputError
from fedunlearn.evaluation.results import Result, result, stated
from fedunlearn.evaluation.retrained import Retrained
from fedunlearn.evaluation.samples import Record, Records, SampleSet
from fedunlearn.metrics import METRICS, ForgetQuality, MembershipAuc, Metric, PrivLeak
from fedunlearn.registry import Registry
from fedunlearn.settings import settings

SUITES = Registry["Suite"]("suite")
_NO_RETRAINED = (
    "no retrained model: `fedunlearn retrain` makes one and its results; name the file with "
    "--retrained"
)


@dataclass(frozen=True)
class Table:
    """Records of a whole evaluation, and what they are compared with.

    Attributes:
        sets: the sample sets, in order.
        records: set name to records.
        retrained: results of a retrained model; ``None`` without one.
    """

    sets: Sequence[SampleSet]
    records: Records
    retrained: Retrained | None = None

    def column(self, name: str, field: str) -> list[float | None]:
        """One score of every sample of a set."""
        return _column(self.records[name], field)

    def retrained_column(self, name: str, field: str) -> list[float | None]:
        """The same under the retrained model.

        Raises:
            InputError: there is no such model, or its results are of other samples.
        """
        if self.retrained is None:
            raise InputError(_NO_RETRAINED)
        chosen = next(one for one in self.sets if one.name == name)
        return _column(self.retrained.records(chosen), field)

    def mean(self, name: str, metric: str, **options: Any) -> Result:
        """Mean over a set of the score that bears the metric's name."""
        entry = METRICS.build(metric, options)
        return result(f"{name}/{metric}", metric, entry, self.column(name, metric), fmean)


@settings
class Suite:
    """A benchmark; entries are frozen dataclasses of their settings."""

    def sample_sets(self) -> list[SampleSet]:
        """Read all data.

        Raises:
            DataError: some is missing or malformed.
            InputError: a setting is wrong.
        """
        raise NotImplementedError

    def results(self, table: Table) -> list[Result]:
        """Sum the records up."""
        raise NotImplementedError

    @property
    def forget_sets(self) -> tuple[str, ...]:
        """Sets that an unlearned model should no longer know; none where nothing is forgotten."""
        return ()


def membership(
    table: Table, members: str, others: str, attacks: Mapping[str, Metric]
) -> list[Result]:
    """AUC of each attack, in the direction that 1 finds every member."""
    area = MembershipAuc()
    found = []
    for name, attack in attacks.items():
        columns = table.column(members, name), table.column(others, name)
        value, reason = _auc(area, *columns)
        n = len(columns[0]) + len(columns[1])
        one = stated(f"{members}/{name}_auc", "membership_auc", area, value, n, reason=reason)
        options = {"attack": name, "score": attack.definition, **attack.options}
        found.append(_with_options(one, options))
    return found


def privleak(
    table: Table,
    members: str,
    others: str,
    *,
    attack: str,
    retrained_auc: float | None = None,
    label: str = "privleak",
) -> Result:
    """PrivLeak against the retrained model's AUC, a given one, or 0.5.

    Args:
        table: the records.
        members: set of the forget data.
        others: set of the holdout data.
        attack: whose scores are compared.
        retrained_auc: published AUC of a retrained model, members being the forget data;
            ``None``: that of the retrained results, or 0.5 without any.
        label: name of the result.
    """
    area, metric = MembershipAuc(), PrivLeak()
    n = len(table.records[members]) + len(table.records[others])
    auc, reason = _auc(area, table.column(members, attack), table.column(others, attack))
    base, origin = retrained_auc, "given"
    if base is None and table.retrained is not None:
        parts = (table.retrained_column(name, attack) for name in (members, others))
        base, reason = _auc(area, *parts)
        origin = "retrained results"
    elif base is None:
        base, origin = 0.5, "0.5, for want of a retrained model"
    options = {"attack": attack, "retrained_auc": base, "retrained_auc_from": origin}
    if auc is None or base is None:
        one = stated(label, "privleak", metric, None, n, reason=reason)
        return _with_options(one, options)
    value = metric(auc, base)
    one = stated(label, "privleak", metric, value, n, flag=metric.flag(value))
    return _with_options(one, {**options, "auc": auc})


def forget_quality(table: Table, name: str, field: str, *, label: str) -> Result:
    """Forget quality on a set's truth ratios; without a retrained model only the reason."""
    metric = ForgetQuality()
    ours = table.column(name, field)
    options = {"truth_ratio": field}
    if table.retrained is None:
        one = stated(label, "forget_quality", metric, None, len(ours), reason=_NO_RETRAINED)
        return _with_options(one, options)
    theirs = [one for one in table.retrained_column(name, field) if one is not None]
    found = result(label, "forget_quality", metric, ours, lambda known: metric(known, theirs))
    return _with_options(found, options)


def _auc(
    area: MembershipAuc, members: Sequence[float | None], others: Sequence[float | None]
) -> tuple[float | None, str | None]:
    known = [[one for one in column if one is not None] for column in (members, others)]
    lost = len(members) + len(others) - len(known[0]) - len(known[1])
    if lost or not known[0] or not known[1]:
        return None, f"{lost} of {len(members) + len(others)} scores are not finite numbers"
    return area(*known), None


def _column(records: Sequence[Record], field: str) -> list[float | None]:
    return [row.get(field) for row in records]


def _with_options(one: Result, options: dict[str, Any]) -> Result:
    return replace(one, options={**one.options, **options})

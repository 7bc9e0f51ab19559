"""From records to results: every score of every model at every stage, and what came back."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any, cast

from fedunlearn.evaluation.asking import PLAIN, Asking
from fedunlearn.evaluation.results import Result, result, stated
from fedunlearn.evaluation.robustness.planning import Kind, Plan, Stage, Treated, Treatment
from fedunlearn.evaluation.samples import Record
from fedunlearn.metrics import METRICS, Recovery

Seen = dict[tuple[str, str, str], list[Record]]
"""(model, stage, set) to records."""
Column = list[float | None]

LIMITS = (
    "Probes show what does come back. That nothing does under these probes proves no erasure: "
    "other rows, more steps, other formats and other prompts were not tried.",
    "Relearning: rows that are not trained on are measured. A model that only suppresses comes "
    "back in few steps, one that never knew does not. Without a retrained model beside it, what "
    "comes back cannot be told from what is learned anew.",
    "Quantization: weights are rounded and products computed in the model's dtype; activations "
    "are not quantised, and another scheme may round differently.",
    "Prompts: the best of many wordings is higher by chance alone; the retrained model's best "
    "shows by how much.",
)
_FLAGS: dict[Kind, str] = {
    "relearning": "comes-back",
    "quantization": "undone-by-rounding",
    "prompts": "still-told",
}
_ALONE = "comes-back-or-learned-anew"
_NO_ORIGINAL = "no original model beside it: name one with --original"


def results(plan: Plan, seen: Seen) -> Iterator[Result]:
    """Scores first, model by model, then recoveries, then the probes that were left out."""
    parts = list(dict.fromkeys(part for part, _, _ in seen))
    places = [
        (treatment, stage, own)
        for treatment in plan.treatments
        for stage in treatment.stages
        for own in stage.sets
    ]
    for part in parts:
        for _, stage, own in places:
            yield from _scores(part, stage, own, seen[part, stage.name, own])
    for treatment, stage, own in places:
        if stage.name != treatment.before or treatment.kind == "prompts":
            yield from _recoveries(treatment, stage, own, seen)
    for name, reason in plan.left_out.items():
        yield stated(f"{name}/recovery", "recovery", Recovery(), None, 0, reason=reason)


def scores_of(stage: Stage, own: str, records: Sequence[Record]) -> list[str]:
    """Names of the scores that a stage's records of a set have; the leading one first."""
    task = cast(Treated, stage.sets[own].task).task
    named = ("rouge_l_recall",) if isinstance(task, Asking) else task.scores
    return [name for name in named if all(name in one for one in records)]


def _scores(part: str, stage: Stage, own: str, records: list[Record]) -> Iterator[Result]:
    at = f"{part}/{stage.name}/{own}"
    for name in scores_of(stage, own, records):
        column = _column(records, name)
        told = {"probe": "best of all"} if "by_probe" in records[0] else {}
        yield _mean(f"{at}/{name}", name, column, **told)
    ways = dict.fromkeys(way for one in records for way in one.get("by_probe", ()))
    for way in ways:
        column = [one["by_probe"][way] for one in records if way in one["by_probe"]]
        yield _mean(f"{at}/rouge_l_recall/{way}", "rouge_l_recall", column, probe=way)


def _mean(label: str, name: str, column: Column, **told: Any) -> Result:
    metric = METRICS.build(name, {})
    found = result(label, name, metric, column, fmean, proportion=name == "choice_accuracy")
    return replace(found, options={**found.options, **told})


def _recoveries(treatment: Treatment, stage: Stage, own: str, seen: Seen) -> Iterator[Result]:
    metric = Recovery()
    for name in scores_of(stage, own, seen["unlearned", stage.name, own]):
        label = f"{stage.name}/{own}/{name}/recovery"
        pairs = {
            part: _pair(treatment, stage, own, name, seen, part)
            for part in ("unlearned", "original", "retrained")
            if (part, stage.name, own) in seen
        }
        n = len(pairs["unlearned"][0])
        if "original" not in pairs:
            yield stated(label, "recovery", metric, None, n, reason=_NO_ORIGINAL)
        elif any(None in column for pair in pairs.values() for column in pair):
            reason = "some scores are not finite numbers"
            yield stated(label, "recovery", metric, None, n, reason=reason)
        else:
            known = {
                part: ([float(one or 0) for one in before], [float(one or 0) for one in after])
                for part, (before, after) in pairs.items()
            }
            yield recovery(label, treatment.kind, known)


def _pair(
    treatment: Treatment, stage: Stage, own: str, name: str, seen: Seen, part: str
) -> tuple[Column, Column]:
    """A score of every sample without and with the probe."""
    after = seen[part, stage.name, own]
    if treatment.kind == "prompts":
        return [one["by_probe"][PLAIN] for one in after], _column(after, name)
    return _column(seen[part, treatment.before, own], name), _column(after, name)


def recovery(
    label: str, kind: Kind, pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> Result:
    """Sum one probe of one score up.

    Args:
        label: name of the result.
        kind: of probe.
        pairs: model to its scores without and with the probe, sample by sample; ``unlearned``,
            ``original`` and perhaps ``retrained``.
    """
    metric = Recovery()
    before, after = (fmean(column) for column in pairs["unlearned"])
    original = fmean(pairs["original"][0])
    anew = None
    if "retrained" in pairs:
        start, end = (fmean(column) for column in pairs["retrained"])
        # a probe that harms what never knew excuses nothing, and must not count as a rise either
        anew = max(0.0, end - start)
    error = _error(*pairs["unlearned"])
    value = metric(before, after, original, anew=anew or 0.0)
    told = {
        "before": before,
        "after": after,
        "original": original,
        "learned_anew": anew,
        "standard_error": error,
    }
    reason = flag = None
    if value is None:
        reason = f"unlearning took away less than {metric.least_loss}; nothing to bring back"
    elif metric.is_high(value, after - before - (anew or 0.0), error):
        flag = _ALONE if kind == "relearning" and anew is None else _FLAGS[kind]
    n = len(pairs["unlearned"][0])
    found = stated(label, "recovery", metric, value, n, reason=reason, flag=flag)
    return replace(found, options={**found.options, **told})


def _error(before: Sequence[float], after: Sequence[float]) -> float:
    """Standard error of the mean rise, over the samples."""
    rises = [later - earlier for earlier, later in zip(before, after, strict=True)]
    return stdev(rises) / math.sqrt(len(rises)) if len(rises) > 1 else 0.0


def _column(records: Sequence[Record], name: str) -> Column:
    return [one.get(name) for one in records]

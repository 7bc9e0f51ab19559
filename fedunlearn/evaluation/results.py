"""What an evaluation found, as one typed object: ``summary.json`` is this, field for field.

``docs/EVALUATION.md`` explains every field to readers of the file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedunlearn.evaluation.bench import ModelIdentity
from fedunlearn.metrics.interface import Metric
from fedunlearn.metrics.wilson import Interval, wilson
from fedunlearn.storage import read_typed, replace_json

FORMAT_VERSION = 1
SUMMARY_FILE = "summary.json"
LIMITS = (
    "None of these numbers proves that anything was removed. A ROUGE of 0, an answer probability "
    "of 0 and an AUC of 0.5 say what these prompts bring out; other wordings, sampling, a few "
    "steps of fine-tuning or quantisation may bring more.",
    "A PrivLeak far above 0 is over-unlearning: the forget data stands out by being less likely "
    "than text the model never saw, which gives it away as well.",
    "Multiple-choice accuracy below chance is no success either: it shows that the model can "
    "still tell the right answer, and avoids it.",
    "Values are comparable with a published table only where definition, prompts, model and "
    "data are the same; each result states its own.",
)


@dataclass(frozen=True)
class Result:
    """One number, and what it is.

    Attributes:
        name: unique in the summary, ``<set>/<what>`` or the name of a benchmark's own score.
        value: ``None`` where it cannot be had; ``reason`` says why.
        n: samples behind it.
        interval: Wilson's, 95 %, for accuracies; ``None`` for others.
        reason: why there is no value.
        flag: what a reader must not take for a success, e.g. ``over-unlearned``.
        metric: name in the registry of metrics.
        definition: the formula.
        source: paper and public implementation.
        direction: what is good.
        options: of the definition.
    """

    name: str
    value: float | None
    n: int
    metric: str
    definition: str
    source: str
    direction: str
    options: dict[str, Any]
    interval: Interval | None = None
    reason: str | None = None
    flag: str | None = None


@dataclass(frozen=True)
class SetFacts:
    """One sample set.

    Attributes:
        file: its records, relative to the summary.
        n: samples.
        sha256: of the samples and of how they are measured.
        source: where they come from.
        task: how they are measured.
    """

    file: str
    n: int
    sha256: str
    source: str
    task: dict[str, Any]


@dataclass(frozen=True)
class ReferenceFacts:
    """The retrained model that some results compare with.

    Attributes:
        file: it was read from.
        model: which one.
    """

    file: str
    model: ModelIdentity


@dataclass(frozen=True)
class Summary:
    """Everything ``summary.json`` holds.

    Attributes:
        format_version: of this layout.
        suite: name and settings.
        model: which model was measured.
        prompt_style: how questions are put, resolved for this model; ``None`` without questions.
        retrained: reference of forget quality and PrivLeak; ``None`` without one.
        results: in the suite's order.
        sets: name to facts.
        versions: of this package and what it stands on.
        limits: what the numbers cannot show.
        beside: other models that were probed; ``original``, ``retrained``.
        probes: settings of ``fedunlearn probe``; ``None`` of ``fedunlearn evaluate``.
    """

    format_version: int
    suite: dict[str, Any]
    model: ModelIdentity
    prompt_style: str | None
    retrained: ReferenceFacts | None
    results: tuple[Result, ...]
    sets: dict[str, SetFacts]
    versions: dict[str, str]
    limits: tuple[str, ...] = LIMITS
    beside: dict[str, ModelIdentity] = field(default_factory=dict)
    probes: dict[str, Any] | None = None

    def value(self, name: str) -> float | None:
        """Value of a result by its name."""
        return next(one.value for one in self.results if one.name == name)


_ADAPTER = TypeAdapter(Summary)


def write_summary(summary: Summary, folder: Path) -> Path:
    """Write ``summary.json`` whole or not at all; return its path."""
    path = folder / SUMMARY_FILE
    replace_json(path, _ADAPTER.dump_python(summary, mode="json"))
    return path


def read_summary(folder: Path) -> Summary:
    """Read a summary.

    Raises:
        InputError: there is none, or it is not one of this version.
    """
    return read_typed(folder / SUMMARY_FILE, _ADAPTER)


def result(
    name: str,
    metric_name: str,
    metric: Metric,
    values: Sequence[float | None],
    compute: Callable[[list[float]], float],
    *,
    proportion: bool = False,
) -> Result:
    """Sum up a column of scores; no value where some score is missing or is not a number.

    Args:
        name: of the result.
        metric_name: in the registry.
        metric: whose definition is stated.
        values: a score a sample; ``None``: not a finite number.
        compute: from the scores to the value.
        proportion: the value is a share of the samples, and gets Wilson's interval.
    """
    known = [one for one in values if one is not None]
    if not values or len(known) < len(values):
        lost = len(values) - len(known)
        reason = f"{lost} of {len(values)} scores are not finite numbers" if values else "no sample"
        return stated(name, metric_name, metric, None, len(values), reason=reason)
    value = compute(known)
    interval = wilson(sum(known), len(known)) if proportion else None
    return stated(name, metric_name, metric, value, len(known), interval=interval)


def stated(
    name: str, metric_name: str, metric: Metric, value: float | None, n: int, **more: Any
) -> Result:
    """A result with its metric's definition."""
    return Result(
        name=name,
        value=value,
        n=n,
        metric=metric_name,
        definition=metric.definition,
        source=metric.source,
        direction=metric.direction,
        options=metric.options,
        **more,
    )

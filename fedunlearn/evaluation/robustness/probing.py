"""Probes an unlearned model, and beside it the original and a retrained one, into one folder."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fedunlearn.evaluation.bench import Bench, ModelIdentity, identify
from fedunlearn.evaluation.results import (
    FORMAT_VERSION,
    LIMITS,
    SUMMARY_FILE,
    Summary,
    write_summary,
)
from fedunlearn.evaluation.robustness.planning import Plan, Stage, Treatment, plan_probes
from fedunlearn.evaluation.robustness.settings import ProbeSettings
from fedunlearn.evaluation.robustness.verdict import LIMITS as PROBE_LIMITS
from fedunlearn.evaluation.robustness.verdict import Seen, results
from fedunlearn.evaluation.running import (
    SAMPLES_FOLDER,
    claim_evaluation,
    facts_of,
    measured,
    versions,
)
from fedunlearn.evaluation.sample_log import SampleLog, key_of
from fedunlearn.evaluation.suites import Suite
from fedunlearn.models.loading import LoadedModel
from fedunlearn.progress import Progress

MARKER = "probe.json"
Part = Literal["unlearned", "original", "retrained"]


@dataclass(frozen=True)
class Subject:
    """A model that is probed.

    Attributes:
        part: what it stands for.
        load: reads it; returns the name of what was put on it, too. It is called once, and the
            model is dropped before the next one is read.
    """

    part: Part
    load: Callable[[], tuple[LoadedModel, str | None]]


def probe(
    name: str,
    suite: Suite,
    subjects: Sequence[Subject],
    chosen: ProbeSettings,
    out: Path,
    *,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Summary:
    """Measure what is not measured yet, and write ``summary.json``.

    Args:
        name: of the suite.
        suite: its forget sets are asked.
        subjects: the unlearned model first.
        chosen: the probes.
        out: folder, new or of an earlier call.
        batch_size: sequences a forward pass.
        progress: called with (samples measured, samples in all).

    Raises:
        InputError: the folder holds something else, the suite has nothing to forget, or an
            adapter does not fit.
        DataError: data is missing or malformed.
        RunError: relearning diverged.
    """
    plan = plan_probes(suite, chosen)
    claim_evaluation(out, MARKER)
    (out / SUMMARY_FILE).unlink(missing_ok=True)
    counter = _Counter(progress, len(subjects) * _size(plan))
    seen: Seen = {}
    identities: dict[str, ModelIdentity] = {}
    for subject in subjects:
        base, update = subject.load()
        identities[subject.part] = identify(base, update=update)
        bench = Bench(base, batch_size)
        folder = out / SAMPLES_FOLDER / subject.part
        for treatment in plan.treatments:
            logs = _logs(treatment, folder, identities[subject.part])
            _measure(treatment, logs, bench, counter)
            seen |= {
                (subject.part, stage.name, own): log.records()
                for stage in treatment.stages
                for own, log in logs[stage.name].items()
            }
        del base, bench
    summary = Summary(
        format_version=FORMAT_VERSION,
        suite={"name": name, **asdict(suite)},
        model=identities["unlearned"],
        prompt_style=None,
        retrained=None,
        results=tuple(results(plan, seen)),
        sets={
            f"{part}/{one.name}": facts_of(one, f"{SAMPLES_FOLDER}/{part}")
            for part in identities
            for treatment in plan.treatments
            for stage in treatment.stages
            for one in stage.sets.values()
        },
        versions=versions(),
        limits=(*PROBE_LIMITS, *LIMITS),
        beside={part: one for part, one in identities.items() if part != "unlearned"},
        probes=asdict(chosen),
    )
    write_summary(summary, out)
    return summary


class _Counter:
    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)


def _size(plan: Plan) -> int:
    return sum(
        len(one.samples)
        for treatment in plan.treatments
        for stage in treatment.stages
        for one in stage.sets.values()
    )


Logs = dict[str, dict[str, SampleLog]]


def _logs(treatment: Treatment, folder: Path, model: ModelIdentity) -> Logs:
    return {
        stage.name: {
            own: SampleLog(folder, one, key_of(model, one, None)) for own, one in stage.sets.items()
        }
        for stage in treatment.stages
    }


def _measure(treatment: Treatment, logs: Logs, bench: Bench, counter: _Counter) -> None:
    """Treat the model only as far as something is missing."""
    for stage in treatment.stages:
        for own, one in stage.sets.items():
            counter.add(len(one.samples) - len(logs[stage.name][own].missing))
    open_stages = [one for one in treatment.stages if list(_missing(one, logs[one.name]))]
    if not open_stages:
        return
    with treatment.on(bench.base) as advance:
        for stage in open_stages:
            advance(stage.steps)
            for own in _missing(stage, logs[stage.name]):
                log = logs[stage.name][own]
                for found in measured(stage.sets[own], log, bench):
                    log.add(found)
                    counter.add(len(found))


def _missing(stage: Stage, logs: dict[str, SampleLog]) -> Iterator[str]:
    yield from (own for own in stage.sets if logs[own].missing)

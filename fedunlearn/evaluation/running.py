"""Evaluates a model by a suite, sample by sample, into a folder that can be gone on with."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from fedunlearn import __version__
from fedunlearn.errors import InputError
from fedunlearn.evaluation.bench import Bench, ModelIdentity
from fedunlearn.evaluation.results import (
    FORMAT_VERSION,
    SUMMARY_FILE,
    ReferenceFacts,
    Result,
    SetFacts,
    Summary,
    write_summary,
)
from fedunlearn.evaluation.retrained import Retrained
from fedunlearn.evaluation.sample_log import SampleLog, key_of
from fedunlearn.evaluation.samples import Record, SampleSet
from fedunlearn.evaluation.suites import Suite, Table
from fedunlearn.progress import Progress
from fedunlearn.storage import claim_folder, read_json, replace_json

SAMPLES_FOLDER = "samples"
MARKER = "evaluation.json"
_CHUNK = 16
"""Batches whose records are written at once; what a stop loses at most."""


@dataclass(frozen=True)
class Evaluated:
    """A summary, and the records behind it."""

    summary: Summary
    sets: Sequence[SampleSet]
    records: dict[str, list[Record]]


def evaluate_suite(
    name: str,
    suite: Suite,
    bench: Bench,
    model: ModelIdentity,
    out: Path,
    *,
    retrained: tuple[str, Retrained] | None = None,
    progress: Progress | None = None,
) -> Evaluated:
    """Measure every sample that is not measured yet, and write ``summary.json``.

    An earlier summary is removed before the first sample is measured, so that none of another
    model, template or suite is ever there for this one's.

    Args:
        name: of the suite.
        suite: what is measured.
        bench: the model.
        model: which one it is.
        out: folder, new or of an earlier evaluation.
        retrained: file and content of a retrained model's results.
        progress: called with (samples measured, samples in all).

    Raises:
        InputError: the folder holds something else, or the retrained results do not fit.
        DataError: data is missing or malformed.
    """
    sets = suite.sample_sets()
    claim_evaluation(out, MARKER)
    (out / SUMMARY_FILE).unlink(missing_ok=True)
    other = None if bench.reference is None else bench.reference.sha256
    logs = [SampleLog(out / SAMPLES_FOLDER, one, key_of(model, one, other)) for one in sets]
    total = sum(len(one.samples) for one in sets)
    done = total - sum(len(log.missing) for log in logs)
    for chosen, log in zip(sets, logs, strict=True):
        for found in measured(chosen, log, bench):
            log.add(found)
            done += len(found)
            if progress is not None:
                progress(done, total)
    records = {one.name: log.records() for one, log in zip(sets, logs, strict=True)}
    table = Table(sets, records, None if retrained is None else retrained[1])
    results = suite.results(table)
    summary = _summary(name, suite, bench, model, sets, results, retrained)
    write_summary(summary, out)
    return Evaluated(summary, sets, records)


def claim_evaluation(out: Path, marker: str) -> None:
    """Take a folder, new or with results of the same sort.

    Raises:
        InputError: it holds something else, or results of another version.
    """
    if (out / marker).is_file():
        found = read_json(out / marker).get("format_version")
        if found != FORMAT_VERSION:
            raise InputError(
                f"{out} is an evaluation of format version {found}, this version writes "
                f"{FORMAT_VERSION}; name another folder"
            )
        return
    with claim_folder(out):
        replace_json(out / marker, {"format_version": FORMAT_VERSION})


def measured(chosen: SampleSet, log: SampleLog, bench: Bench) -> Iterator[list[Record]]:
    """Measure the samples of a set that are missing, some at a time."""
    samples = {one.id: one for one in chosen.samples}
    missing, size = log.missing, bench.batch_size * _CHUNK
    for start in range(0, len(missing), size):
        yield chosen.task.measure(bench, [samples[one] for one in missing[start : start + size]])


def _summary(
    name: str,
    suite: Suite,
    bench: Bench,
    model: ModelIdentity,
    sets: Sequence[SampleSet],
    results: Sequence[Result],
    retrained: tuple[str, Retrained] | None,
) -> Summary:
    prompts = getattr(suite, "prompts", None)
    return Summary(
        format_version=FORMAT_VERSION,
        suite={"name": name, **asdict(suite)},
        model=model,
        prompt_style=None if prompts is None else prompts.resolved(bench.tokenizer),
        retrained=None if retrained is None else ReferenceFacts(retrained[0], retrained[1].model),
        results=tuple(results),
        sets={one.name: facts_of(one) for one in sets},
        versions=versions(),
    )


def versions() -> dict[str, str]:
    """Versions of this package and of what it stands on."""
    stack = ("torch", "transformers")
    return {"fedunlearn": __version__, **{package: version(package) for package in stack}}


def facts_of(one: SampleSet, folder: str = SAMPLES_FOLDER) -> SetFacts:
    """What the summary says of a set whose records lie in a folder below its own."""
    return SetFacts(
        f"{folder}/{one.name}.jsonl",
        len(one.samples),
        one.sha256,
        one.source,
        one.task.described(),
    )

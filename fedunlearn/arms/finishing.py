"""Measures every arm on the live model, and reports."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedunlearn.absence import absentees
from fedunlearn.arms.files import ArmOutcome, read_unlearned
from fedunlearn.arms.report import FORMAT_VERSION, LIMITS, ArmsReport, write_arms_report
from fedunlearn.arms.text import write_arms_markdown
from fedunlearn.assembly import stack_versions
from fedunlearn.config import MpuConfig
from fedunlearn.errors import RunError
from fedunlearn.evaluation import read_bank
from fedunlearn.events import EVENTS_FILE, read_events
from fedunlearn.fates import arm_fates
from fedunlearn.models.loading import LoadedModel, fingerprint, load_base
from fedunlearn.models.patching import applied
from fedunlearn.outliers import read_outliers
from fedunlearn.progress import Silent, Watcher
from fedunlearn.receipts import RunRecord, check_start, issue, standing
from fedunlearn.report import MissingClient, RunFacts
from fedunlearn.scores import SetReport, leading_metric, summarise
from fedunlearn.sweeping import Exam


def finish_arms(
    run_dir: Path,
    config: MpuConfig,
    *,
    warnings: Sequence[str] = (),
    watcher: Watcher | None = None,
) -> ArmsReport:
    """Measure ``run_dir/unlearned`` and write ``report.json`` and ``report.md``.

    Args:
        run_dir: the run's folder.
        config: of the run.
        warnings: what the rounds had to say.
        watcher: shows progress.

    Raises:
        InputError: an arm's result is missing or damaged.
        RunError: it was made from another model than the one evaluated.
    """
    bank, base = read_bank(config.evaluation), load_base(config.model)
    chosen = config.previous
    start = standing(Path(chosen.receipt), chosen.result) if chosen else None
    check_start(start, base.sha256)
    outcomes: dict[str, ArmOutcome] = {}
    scores: dict[str, dict[str, SetReport]] = {}
    results: dict[str, str] = {}
    with (watcher or Silent()).stage("evaluating") as progress:
        rounds = 1 + len(config.arms)
        exam = Exam(base, bank, config.evaluation, progress=progress, rounds=rounds)
        before = summarise(exam.base_scores())
        for name in config.arms:
            outcomes[name], delta = read_unlearned(run_dir, name)
            _check_base(outcomes[name], base)
            with applied(base.model, delta):
                scores[name] = summarise(exam.base_scores())
                results[name] = fingerprint(base.model)
    missing = tuple(_missing(run_dir, outcomes))
    log = read_events(run_dir / EVENTS_FILE) if (run_dir / EVENTS_FILE).is_file() else []
    hellos = [event["clients"] for event in log if event["event"] == "handshake"]
    report = ArmsReport(
        format_version=FORMAT_VERSION,
        method=config.method,
        run=_run_facts(config, base, outcomes),
        missing=missing,
        warnings=tuple(dict.fromkeys([*warnings, *_notes(outcomes)])),
        metric=leading_metric(before),
        base=before,
        arms=outcomes,
        scores=scores,
        limits=LIMITS,
        fates=arm_fates(
            hellos[-1] if hellos else [],
            missing,
            {name: outcome.clients for name, outcome in outcomes.items()},
        ),
        outliers=read_outliers(log),
    )
    write_arms_markdown(report, run_dir)
    write_arms_report(report, run_dir)
    record = RunRecord(
        facts=report.run,
        requests=config.requests,
        fates=report.fates,
        results=results,
        scores={"base": report.base, **report.scores},
        damage={},
        previous=start,
        key=config.receipt_key,
    )
    issue(run_dir, record, now=time.time())
    return report


def _check_base(outcome: ArmOutcome, base: LoadedModel) -> None:
    if outcome.base_model_sha256 != base.sha256:
        raise RunError(
            f"{outcome.name!r} was made from model {outcome.base_model_sha256[:12]} "
            f"({outcome.base_model}), but {base.name} has {base.sha256[:12]}"
        )


def _run_facts(
    config: MpuConfig, base: LoadedModel, outcomes: Mapping[str, ArmOutcome]
) -> RunFacts:
    return RunFacts(
        name=config.name,
        seed=config.seed,
        base_model=base.name,
        base_model_sha256=base.sha256,
        seconds={name: outcome.seconds for name, outcome in outcomes.items()},
        versions=stack_versions(),
    )


def _missing(run_dir: Path, outcomes: Mapping[str, ArmOutcome]) -> list[MissingClient]:
    """Clients that some arm had to do without."""
    everywhere = set.intersection(*(set(outcome.clients) for outcome in outcomes.values()))
    return [
        MissingClient(f.client_id, f.role, f.domain, f.reason, f.consequence)
        for f in absentees(run_dir / EVENTS_FILE, everywhere)
    ]


def _notes(outcomes: Mapping[str, ArmOutcome]) -> list[str]:
    """What readers of the table must know of how it was made."""
    notes = [note for outcome in outcomes.values() for note in outcome.notes]
    if any(outcome.scheme == "mpu" and outcome.secret == "seed" for outcome in outcomes.values()):
        notes.append(
            "noise and symmetries were derived from secret_seed: whoever knows it can undo every "
            "copy; leave it null where secrecy matters"
        )
    bare: dict[int, list[str]] = {}
    for name, outcome in outcomes.items():
        exact = {one for copy in outcome.copies for one in copy.get("exact", ())}
        if exact:
            bare.setdefault(len(exact), []).append(name)
    notes += [
        f"{', '.join(names)}: {count} weights were published without noise"
        for count, names in bare.items()
    ]
    return notes

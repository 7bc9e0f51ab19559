"""A run from before the first client to after the last: what the roots have in common.

``prepare`` makes everything a round needs; the round itself, on Ray or on a deployed federation,
fills ``summaries/``; ``finish`` merges, evaluates, sweeps and reports.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from fedunlearn.aggregation import write_merge
from fedunlearn.assembly import build_report
from fedunlearn.config import AnyConfig, CommonConfig, RunConfig, check_files, leak_notes, to_yaml
from fedunlearn.errors import InputError
from fedunlearn.evaluation import read_bank
from fedunlearn.evaluation.own_data import read_own
from fedunlearn.events import EVENTS_FILE, read_events
from fedunlearn.models.loading import fingerprint, load_base
from fedunlearn.models.patching import applied
from fedunlearn.plots import write_plot
from fedunlearn.progress import Silent, Watcher
from fedunlearn.receipts import RunRecord, Standing, ceilings, check_start, issue, standing
from fedunlearn.registry import nearest
from fedunlearn.report import REPORT_JSON, Report, write_report
from fedunlearn.report_text import write_markdown
from fedunlearn.scores import summarise
from fedunlearn.storage import claim_folder, read_json, replace_json
from fedunlearn.summary import open_summaries
from fedunlearn.sweeping import Exam, Finding, MergeBench, check_base, plan_trials, run_trials
from fedunlearn.training.teaching import ensure_world

CONFIG_FILE = "config.yaml"
MERGED_FOLDER = "merged"
SUMMARIES_FOLDER = "summaries"
_NOTES_FILE = ".notes.json"
logger = logging.getLogger(__name__)


def prepare(
    config: AnyConfig, run_dir: Path, *, watcher: Watcher | None = None, local: bool = False
) -> list[str]:
    """Make the embedded world where there is one, check the data, and write ``config.yaml``.

    Args:
        config: of the run.
        run_dir: the run's folder, new or empty.
        watcher: shows progress.
        local: the clients run on this machine too, so their data is checked as well.

    Returns:
        Warnings for the report: records that two share who should not.

    Raises:
        InputError: the run folder holds an earlier run or cannot be written, or a data file is
            faulty.
    """
    with claim_folder(run_dir):
        make_world(config, watcher=watcher)
        if local:
            check_files(config)
        read_bank(config.evaluation)
        notes = leak_notes(config, clients=local, fetch=True)
        replace_json(run_dir / _NOTES_FILE, {"notes": notes})
        (run_dir / CONFIG_FILE).write_text(to_yaml(config), encoding="utf-8")
    return notes


def read_notes(run_dir: Path) -> list[str]:
    """What :func:`prepare` found, for a run that goes on."""
    path = run_dir / _NOTES_FILE
    return [str(note) for note in read_json(path)["notes"]] if path.is_file() else []


def unfinished(config: AnyConfig, run_dir: Path) -> bool:
    """Whether the folder holds a run of this very config that was cut off and can go on.

    Raises:
        InputError: the run there is finished, or of another config.
    """
    stored = run_dir / CONFIG_FILE
    if not stored.is_file():
        return False
    if stored.read_text(encoding="utf-8") != to_yaml(config):
        raise InputError(f"{run_dir} holds a run of another config; name another folder")
    if (run_dir / REPORT_JSON).is_file():
        raise InputError(f"{run_dir} holds a finished run; name another folder")
    return True


def round_is_over(run_dir: Path) -> bool:
    """Whether all summaries are there and only the merge is left to do."""
    return (run_dir / SUMMARIES_FOLDER).is_dir()


def round_warnings(run_dir: Path) -> tuple[str, ...]:
    """What the round had to say, if it is over, from its log."""
    log = run_dir / EVENTS_FILE
    done = [one for one in read_events(log) if one["event"] == "round_done"] if log.exists() else []
    return tuple(done[-1]["warnings"]) if done else ()


def make_world(config: CommonConfig, *, watcher: Watcher | None = None) -> None:
    """Make the embedded world, where the config has one and it is not there yet."""
    if config.world is not None:
        with (watcher or Silent()).stage("teaching the embedded model") as progress:
            ensure_world(config.world, progress=progress)


def summaries_folder(given: Path) -> Path:
    """Return a run's folder of summaries, or the folder itself if it is no run's."""
    below = given / SUMMARIES_FOLDER
    return below if below.is_dir() else given


def merged_folder(run_dir: Path, name: str) -> Path:
    """Return the folder of a run's merge.

    Raises:
        InputError: the run has none of that name; the text has the nearest one.
    """
    merged = run_dir / MERGED_FOLDER
    known = sorted(path.name for path in merged.iterdir()) if merged.is_dir() else []
    if not known:
        raise InputError(f"{run_dir} holds no {MERGED_FOLDER}/; did the run finish?")
    if name not in known:
        raise InputError(f"{merged} has no {name!r}{nearest(name, known)}")
    return merged / name


def finish(
    run_dir: Path,
    config: RunConfig,
    *,
    warnings: Sequence[str] = (),
    watcher: Watcher | None = None,
) -> Report:
    """Merge ``run_dir/summaries`` in every way the config asks for, and report.

    Writes ``merged/<name>/`` for every merge, ``report.json``, ``report.md`` and the plot.

    Args:
        run_dir: the run's folder.
        config: of the run.
        warnings: what the round had to say, e.g. whose data is not protected.
        watcher: shows progress.

    Raises:
        SummaryError: a summary is faulty, or two do not fit together.
        RunError: the clients started from another base model than the one evaluated.
    """
    watcher = watcher or Silent()
    summaries = open_summaries(run_dir / SUMMARIES_FOLDER)
    bank = read_bank(config.evaluation)
    base = load_base(config.model)
    check_base(summaries, base.start_sha256)
    before = standing_of(config)
    check_start(before, base.sha256)
    limits, spent = ceilings(
        config.cumulative.budget,
        before.damage if before else {},
        [one.meta.client_id for one in summaries if one.meta.role == "retain"],
        refuse=config.cumulative.when_spent == "refuse",
    )
    bench = MergeBench(summaries, limits)
    trials = plan_trials(config.merges, config.swept)
    findings: list[Finding] = []
    results: dict[str, str] = {}
    with watcher.stage("merging and evaluating") as progress:
        rounds = 1 + len(trials)
        exam = Exam(base, bank, config.evaluation, progress=progress, rounds=rounds)
        base_scores = summarise(exam.base_scores())
        for finding, result in run_trials(trials, bench, exam):
            findings.append(finding)
            if finding.trial.configured:
                write_merge(result, run_dir / MERGED_FOLDER / finding.trial.merge)
                with applied(base.model, result.delta):
                    results[finding.trial.merge] = fingerprint(base.model)
    report = build_report(
        config,
        summaries,
        findings,
        base=base_scores,
        events=run_dir / EVENTS_FILE,
        warnings=[*warnings, *spent],
        own_data=read_own(run_dir),
    )
    _write(report, run_dir)
    record = RunRecord(
        facts=report.run,
        requests=config.requests,
        fates=report.fates,
        results=results,
        scores={"base": report.base, **report.scores},
        damage={name: row.largest_damage for name, row in report.merges.items()},
        previous=before,
        key=config.receipt_key,
    )
    issue(run_dir, record, now=time.time())
    return report


def standing_of(config: CommonConfig) -> Standing | None:
    """Where the sequence of requests stands that the run goes on with, if it does.

    Raises:
        InputError: the receipt before cannot be read or has no such result.
        RunError: it does not hold.
    """
    chosen = config.previous
    return standing(Path(chosen.receipt), chosen.result) if chosen else None


def _write(report: Report, run_dir: Path) -> None:
    plot = write_plot(report, run_dir)
    write_markdown(report, run_dir, plot=plot.name if plot else None)
    logger.info("report: %s", write_report(report, run_dir))

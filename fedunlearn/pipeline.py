"""A run from before the first client to after the last: what the roots have in common.

``prepare`` makes everything a round needs; the round itself, on Ray or on a deployed federation,
fills ``summaries/``; ``finish`` merges, evaluates, sweeps and reports.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from fedunlearn.aggregation import write_merge
from fedunlearn.assembly import build_report
from fedunlearn.config import AnyConfig, CommonConfig, RunConfig, check_files, leak_notes, to_yaml
from fedunlearn.errors import InputError
from fedunlearn.evaluation import read_bank
from fedunlearn.evaluation.own_data import read_own
from fedunlearn.events import EVENTS_FILE
from fedunlearn.models.loading import load_base
from fedunlearn.plots import write_plot
from fedunlearn.progress import Silent, Watcher
from fedunlearn.registry import nearest
from fedunlearn.report import Report, write_report
from fedunlearn.report_text import write_markdown
from fedunlearn.scores import summarise
from fedunlearn.storage import claim_folder
from fedunlearn.summary import open_summaries
from fedunlearn.sweeping import Exam, Finding, MergeBench, check_base, plan_trials, run_trials
from fedunlearn.training.teaching import ensure_world

CONFIG_FILE = "config.yaml"
MERGED_FOLDER = "merged"
SUMMARIES_FOLDER = "summaries"
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
        (run_dir / CONFIG_FILE).write_text(to_yaml(config), encoding="utf-8")
    return notes


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
    bench = MergeBench(summaries)
    trials = plan_trials(config.merges, config.swept)
    findings: list[Finding] = []
    with watcher.stage("merging and evaluating") as progress:
        rounds = 1 + len(trials)
        exam = Exam(base, bank, config.evaluation, progress=progress, rounds=rounds)
        base_scores = summarise(exam.base_scores())
        for finding, result in run_trials(trials, bench, exam):
            findings.append(finding)
            if finding.trial.configured:
                write_merge(result, run_dir / MERGED_FOLDER / finding.trial.merge)
    report = build_report(
        config,
        summaries,
        findings,
        base=base_scores,
        events=run_dir / EVENTS_FILE,
        warnings=warnings,
        own_data=read_own(run_dir),
    )
    _write(report, run_dir)
    return report


def _write(report: Report, run_dir: Path) -> None:
    plot = write_plot(report, run_dir)
    write_markdown(report, run_dir, plot=plot.name if plot else None)
    logger.info("report: %s", write_report(report, run_dir))

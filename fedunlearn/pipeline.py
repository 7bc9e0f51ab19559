"""A run from before the first client to after the last: what the roots have in common.

``prepare`` makes everything a round needs; the round itself, on Ray or on a deployed federation,
fills ``summaries/``; ``finish`` merges, evaluates, sweeps and reports.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from fedunlearn.aggregation import write_merge
from fedunlearn.assembly import build_report
from fedunlearn.config import RunConfig, check_files, to_yaml
from fedunlearn.errors import InputError, RunError
from fedunlearn.evaluation import read_bank
from fedunlearn.models.loading import load_base
from fedunlearn.plots import write_plot
from fedunlearn.progress import Silent, Watcher
from fedunlearn.report import Report, write_report
from fedunlearn.report_text import write_markdown
from fedunlearn.summary import ClientSummary, open_summaries
from fedunlearn.sweeping import Exam, Finding, MergeBench, plan_trials, run_trials
from fedunlearn.training.teaching import ensure_world

CONFIG_FILE = "config.yaml"
MERGED_FOLDER = "merged"
logger = logging.getLogger(__name__)


def prepare(
    config: RunConfig, run_dir: Path, *, watcher: Watcher | None = None, local: bool = False
) -> None:
    """Make the embedded world where there is one, check the data, and write ``config.yaml``.

    Args:
        config: of the run.
        run_dir: the run's folder, new or empty.
        watcher: shows progress.
        local: the clients run on this machine too, so their data is checked as well.

    Raises:
        InputError: the run folder holds an earlier run, or a data file is faulty.
    """
    if run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir())):
        raise InputError(f"{run_dir} is not empty; name another folder for the run")
    if config.world is not None:
        with (watcher or Silent()).stage("teaching the embedded model") as progress:
            ensure_world(config.world, progress=progress)
    if local:
        check_files(config)
    read_bank(config.evaluation)
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / CONFIG_FILE).write_text(to_yaml(config), encoding="utf-8")


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
    summaries = open_summaries(run_dir / "summaries")
    bank = read_bank(config.evaluation)
    base = load_base(config.model)
    _check_base(summaries, base.sha256)
    bench = MergeBench(summaries)
    trials = plan_trials(config.merges, config.swept)
    findings: list[Finding] = []
    with watcher.stage("merging and evaluating") as progress:
        rounds = 1 + len(trials)
        exam = Exam(base, bank, config.evaluation, progress=progress, rounds=rounds)
        base_scores = exam.base_scores()
        for finding, result in run_trials(trials, bench, exam):
            findings.append(finding)
            if finding.trial.configured:
                write_merge(result, run_dir / MERGED_FOLDER / finding.trial.merge)
    report = build_report(
        config,
        summaries,
        findings,
        base=base_scores,
        events=run_dir / "events.jsonl",
        warnings=warnings,
    )
    _write(report, run_dir)
    return report


def _check_base(summaries: Sequence[ClientSummary], sha256: str) -> None:
    """Refuse to evaluate an update on a model it was not made for."""
    theirs = summaries[0].meta.base_model_sha256
    if theirs != sha256:
        raise RunError(
            f"the clients started from base model {theirs[:12]} ({summaries[0].meta.base_model}), "
            f"the server has {sha256[:12]}; use the same model and dtype on all sides"
        )


def _write(report: Report, run_dir: Path) -> None:
    plot = write_plot(report, run_dir)
    write_markdown(report, run_dir, plot=plot.name if plot else None)
    logger.info("report: %s", write_report(report, run_dir))

"""What ``sweep`` and ``compare`` do once the command line is read."""

from collections.abc import Sequence
from pathlib import Path

from fedunlearn.config import load_config, load_merge
from fedunlearn.console import TerminalWatcher, show_paths, show_table, stderr, stdout
from fedunlearn.errors import InputError
from fedunlearn.evaluation import read_bank
from fedunlearn.exploration import (
    Ledger,
    Point,
    QuestionsOrigin,
    Tally,
    explore,
    parse_domains,
    parse_epsilons,
    parse_methods,
    parse_numbers,
    plan,
    read_sweep,
    trace,
    unmeasured,
)
from fedunlearn.models.loading import load_base
from fedunlearn.pipeline import make_world, summaries_folder
from fedunlearn.progress import Watcher
from fedunlearn.registry import nearest
from fedunlearn.study import (
    COMPARE_JSON,
    COMPARE_MARKDOWN,
    Chances,
    Study,
    build_study,
    write_study,
)
from fedunlearn.study.tables import frontier_table, pairs_table
from fedunlearn.study_plots import write_study_plots
from fedunlearn.summary import ClientSummary, open_summaries
from fedunlearn.sweeping import Exam, check_base


def sweep(
    given: Path,
    out: Path,
    *,
    methods: str,
    gamma: str,
    epsilon: str,
    alpha: str,
    eps0: float,
    solver: str,
    domains: str | None,
    evaluate: str | None,
    quiet: bool,
) -> None:
    """Make, and on request measure, every point of a grid that is not there yet.

    Args:
        given: a run's folder, or the folder of summaries itself.
        out: the sweep's folder, new or an earlier one from the same inputs.
        methods: merge methods, as text; so are the next three.
        gamma: scales.
        epsilon: budgets.
        alpha: fractions of Fisher entries kept.
        eps0: stabiliser of the divisions.
        solver: of the projection.
        domains: order in which forget domains join; ``None``: all at once.
        evaluate: a config whose model and questions measure every point.
        quiet: no progress bars.
    """
    chosen = parse_methods(methods), parse_numbers("gamma", gamma), parse_epsilons(epsilon)
    alphas, common = parse_numbers("alpha", alpha), load_merge({"eps0": eps0, "solver": solver})
    folder = summaries_folder(given)
    summaries = open_summaries(folder)
    known = sorted({s.meta.domain for s in summaries if s.meta.role == "forget"})
    points = plan(
        chosen[0],
        gammas=chosen[1],
        epsilons=chosen[2],
        alphas=alphas,
        subsets=[tuple(known)] if domains is None else parse_domains(domains, known),
        common=common,
    )
    watcher = TerminalWatcher(stderr(), quiet=quiet)
    tally = _explore(points, summaries, folder, out, evaluate=evaluate, watcher=watcher)
    stdout().print(
        f"{tally.points} points, {tally.merged} of them made now; {tally.evaluated} models "
        f"evaluated now\n{out}",
        markup=False,
        soft_wrap=True,
    )


def _explore(
    points: Sequence[Point],
    summaries: Sequence[ClientSummary],
    folder: Path,
    out: Path,
    *,
    evaluate: str | None,
    watcher: Watcher,
) -> Tally:
    meta = summaries[0].meta
    origin = trace(folder, base_model=meta.base_model, base_model_sha256=meta.base_model_sha256)
    if evaluate is None:
        ledger = Ledger(out, origin)
        with watcher.stage("merging") as progress:
            return explore(points, summaries, ledger, progress=progress)
    config = load_config(evaluate)
    make_world(config, watcher=watcher)
    bank = read_bank(config.evaluation)
    ledger = Ledger(out, origin.asking(QuestionsOrigin.of(config.evaluation)))
    base = load_base(config.model)
    check_base(summaries, base.start_sha256)
    with watcher.stage("merging and evaluating") as progress:
        rounds = max(1, unmeasured(points, ledger))
        exam = Exam(base, bank, config.evaluation, progress=progress, rounds=rounds)
        return explore(points, summaries, ledger, exam=exam)


def compare(
    folder: Path,
    references: Sequence[str],
    *,
    at: float | None,
    confidence: float,
    resamples: int,
    seed: int,
) -> None:
    """Write ``compare.md``, ``compare.json`` and plots into a sweep's folder; show the gist.

    Args:
        folder: of the sweep.
        references: variants to match with all others; none: every pair once.
        at: gamma of the ablation table.
        confidence: of every interval.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        InputError: no sweep is there, or a reference or gamma that it does not have.
    """
    provenance, base, records = read_sweep(folder)
    _check_asked([record.point for record in records], references, at)
    try:
        chances = Chances(confidence=confidence, resamples=resamples, seed=seed)
    except ValueError as fault:
        raise InputError(str(fault)) from None
    study = build_study(provenance, base, records, chances=chances, at=at, references=references)
    plots = write_study_plots(study, folder)
    write_study(study, folder, plots=plots)
    _show(study, folder, list(plots.values()))


def _check_asked(points: Sequence[Point], references: Sequence[str], at: float | None) -> None:
    if not points:
        raise InputError("the sweep has no point yet; let `fedunlearn sweep` make some")
    variants = list(dict.fromkeys(point.variant for point in points))
    for name in references:
        if name not in variants:
            raise InputError(f"--reference: no variant is named {name!r}{nearest(name, variants)}")
    gammas = sorted({point.merge.gamma for point in points})
    if at is not None and at not in gammas:
        tried = ", ".join(f"{gamma:g}" for gamma in gammas)
        raise InputError(f"--at: nothing was tried at gamma {at:g}; tried: {tried}")


def _show(study: Study, folder: Path, plots: list[str]) -> None:
    console = stdout()
    if study.metric is None:
        console.print("Nothing was evaluated, so only norms are compared.")
    if study.matched:
        console.print("At matched forgetting:")
        show_table(pairs_table(study), console)
    if study.standings:
        console.print("On the Pareto frontier:")
        show_table(frontier_table(study), console)
    show_paths(folder, [COMPARE_MARKDOWN, COMPARE_JSON, *plots], console)

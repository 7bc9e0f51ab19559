"""What the commands do once the command line is read: the composition root of a local run."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fedunlearn.absence import absentees
from fedunlearn.aggregation import MergeReport, in_turn, merge_to, parse_epsilon, read_merge
from fedunlearn.arms import UNLEARNED_FOLDER, finish_arms, read_unlearned
from fedunlearn.assembly import merge_row
from fedunlearn.config import (
    AnyConfig,
    MpuConfig,
    builtin_configs,
    check_config,
    leak_notes,
    load_config,
    load_merge,
    load_run,
)
from fedunlearn.console import TerminalWatcher, show_arms, show_report, show_table, stderr, stdout
from fedunlearn.data.sources import SOURCES
from fedunlearn.errors import ConfigError, InputError
from fedunlearn.evaluation import SUITES
from fedunlearn.events import EVENTS_FILE
from fedunlearn.export import ExportReport, export_adapter, export_model
from fedunlearn.merging import MERGE_METHODS
from fedunlearn.metrics import METRICS
from fedunlearn.models.expert import Expert, load_expert
from fedunlearn.models.loading import load_base
from fedunlearn.objectives import OBJECTIVES
from fedunlearn.pipeline import (
    CONFIG_FILE,
    finish,
    make_world,
    merged_folder,
    prepare,
    read_notes,
    round_is_over,
    round_warnings,
    summaries_folder,
)
from fedunlearn.ray_workers import ray_workers
from fedunlearn.receipts import RECEIPT_FILE, check_start, read_receipt, standing
from fedunlearn.receipts import verify as check_receipt
from fedunlearn.registry import Registry
from fedunlearn.simulation import simulate
from fedunlearn.summary import open_summaries
from fedunlearn.tables import Table
from fedunlearn.training.expert_lesson import save_lesson, teach_expert

Listing = Literal["merges", "objectives", "sources", "metrics", "suites", "configs"]
Workers = Literal["threads", "ray"]
ExportForm = Literal["model", "adapter"]
_REGISTRIES: dict[str, Registry[Any]] = {
    "merges": MERGE_METHODS,
    "objectives": OBJECTIVES,
    "sources": SOURCES,
    "metrics": METRICS,
    "suites": SUITES,
}


def run(
    given: Sequence[str], out: Path | None, *, verbose: bool, quiet: bool, start: str | None = None
) -> None:
    """Do a whole run with simulated clients, and show the result.

    Args:
        given: a config and overrides.
        out: the run's folder.
        verbose: let Flower and Ray log.
        quiet: no progress bars.
        start: ``RUN`` or ``RUN:result``, a finished run to go on from.
    """
    source, overrides = _split(given)
    config = load_run(source, [*overrides, *(_starting(start) if start else ())], local=True)
    run_dir = out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{config.name}"
    watcher = TerminalWatcher(stderr(), quiet=quiet)
    notes = prepare(config, run_dir, watcher=watcher, local=True)
    with watcher.stage("clients") as progress:
        warnings = [*notes, *simulate(config, run_dir, progress=progress, verbose=verbose)]
    _finish(config, run_dir, warnings, watcher)


def _starting(start: str) -> list[str]:
    """Export the result of a finished run as the next one's base; say so as overrides."""
    name, _, result = start.partition(":")
    run_dir = Path(name).absolute()
    receipt = run_dir / RECEIPT_FILE
    known = list(read_receipt(receipt)[0].results)
    chosen = result or known[0]
    before = standing(receipt, chosen)
    folder = run_dir / "next" / chosen
    if not (folder / "export.json").is_file():
        export(run_dir, folder, chosen, form="model", rank=None)
    model = load_run(run_dir / CONFIG_FILE).model
    model = replace(model, path=str(folder), expert=None, expert_revision=None)
    check_start(before, load_base(model).sha256)
    return [
        f"model.path={folder}",
        "model.expert=null",
        "model.expert_revision=null",
        f"previous={{receipt: {receipt}, result: {chosen}}}",
    ]


def verify(receipt: Path, *, public_key: Path | None, run_dir: Path | None) -> None:
    """Check a receipt, and say what was found to hold."""
    path = receipt / RECEIPT_FILE if receipt.is_dir() else receipt
    for line in check_receipt(path, public_key=public_key, run_dir=run_dir):
        stdout().print(line, markup=False, soft_wrap=True)


def resume(run_dir: Path, *, verbose: bool, quiet: bool) -> None:
    """Go on with a run that was interrupted, from what its folder holds.

    Raises:
        InputError: the folder is no run's.
    """
    config = load_run(run_dir / CONFIG_FILE, local=True)
    watcher = TerminalWatcher(stderr(), quiet=quiet)
    make_world(config, watcher=watcher)
    if not isinstance(config, MpuConfig) and round_is_over(run_dir):
        warnings = round_warnings(run_dir)
    else:
        with watcher.stage("clients") as progress:
            warnings = simulate(config, run_dir, progress=progress, verbose=verbose)
    _finish(config, run_dir, [*read_notes(run_dir), *warnings], watcher)


def _finish(
    config: AnyConfig, run_dir: Path, warnings: Sequence[str], watcher: TerminalWatcher
) -> None:
    if isinstance(config, MpuConfig):
        arms = finish_arms(run_dir, config, warnings=warnings, watcher=watcher)
        show_arms(arms, run_dir, stdout())
    else:
        report = finish(run_dir, config, warnings=warnings, watcher=watcher)
        show_report(report, run_dir, stdout())


def teach(given: Sequence[str], out: Path, *, quiet: bool) -> None:
    """Make the expert adapter of a config's ``teach`` section."""
    config = load_config(*_split(given))
    if config.teach is None:
        raise InputError("the config has no section teach; configs/firm_tofu_zephyr.yaml has one")
    watcher = TerminalWatcher(stderr(), quiet=quiet)
    make_world(config, watcher=watcher)
    base = load_base(replace(config.model, expert=None, expert_revision=None))
    with watcher.stage("teaching the expert") as progress:
        lesson = teach_expert(base, config.teach, seed=config.seed, progress=progress)
    save_lesson(lesson, out)
    stdout().print(
        f"expert: {lesson.facts.steps} steps, loss {lesson.facts.first_loss:.3g} in the first "
        f"epoch, {lesson.facts.last_loss:.3g} in the last; sha256 {lesson.sha256[:16]}\n{out}",
        markup=False,
        soft_wrap=True,
    )


def check(given: Sequence[str], *, fetch: bool = False) -> None:
    """Say that a config has no fault, and which records are where they should not be.

    Args:
        given: a config and overrides.
        fetch: read data that is on the hub, too.

    Raises:
        ConfigError: it has; all are listed.
    """
    source, overrides = _split(given)
    if faults := check_config(source, overrides, fetch=fetch):
        raise ConfigError(faults)
    config = load_run(source, overrides)
    for note in leak_notes(config, clients=True, fetch=fetch):
        stderr().print(f"warning: {note}", markup=False, soft_wrap=True)
    roles = [client.role for client in config.clients]
    stdout().print(
        f"{config.name}: no fault; {roles.count('forget')} forget and {roles.count('retain')} "
        f"retain clients, {_plan_in_words(config)}",
        soft_wrap=True,
    )


def _plan_in_words(config: AnyConfig) -> str:
    if isinstance(config, MpuConfig):
        copies = sum(arm.rounds * arm.copies_a_round for arm in config.arms.values())
        return f"{len(config.arms)} arms, {copies} copies to publish"
    return (
        f"{len(config.merges)} merges, {len(config.swept)} of them swept over "
        f"{sum(map(len, config.swept.values()))} gammas"
    )


def merge(
    summaries: Path, out: Path, options: Sequence[str], *, workers: Workers, **chosen: object
) -> None:
    """Merge stored summaries.

    Args:
        summaries: a run's folder, or the folder of summaries itself.
        out: for ``delta.safetensors`` and ``merge.json``.
        options: hyperparameters of the method, ``name=value`` each.
        workers: ``threads`` of this process, or a ``ray`` cluster; the result is the same.
        **chosen: the other fields of the merge's settings; ``epsilon`` as text.
    """
    chosen["epsilon"] = parse_epsilon(str(chosen["epsilon"]))
    settings = load_merge({**chosen, "options": dict(_pair(text) for text in options)})
    folder = summaries_folder(summaries)
    opened = open_summaries(folder)
    with ray_workers() if workers == "ray" else nullcontext(in_turn) as spread:
        report = merge_to(out, opened, settings, spread=spread)
    absent = absentees(folder.parent / EVENTS_FILE, {one.meta.client_id for one in opened})
    notes = [f"{failure}; {failure.consequence}" for failure in absent]
    for warning in (*notes, *report.warnings):
        stderr().print(f"warning: {warning}", markup=False)
    row = merge_row(report)
    stdout().print(
        f"{row.method}: norm {row.norm:.4g} ({row.raw_norm:.4g} before the projection), "
        f"{row.constrained_tensors} of {row.tensors} tensors constrained\n{out}",
        markup=False,
        soft_wrap=True,
    )


def export(run_dir: Path, out: Path, name: str, *, form: ExportForm, rank: int | None) -> None:
    """Write a run's merge, or the result of an arm, ``name`` as a model or as an adapter."""
    if (run_dir / UNLEARNED_FOLDER).is_dir():
        _export_arm(run_dir, out, name, form=form)
        return
    merged = read_merge(merged_folder(run_dir, name))
    origin = merged.report
    if form == "adapter":
        report = export_adapter(
            merged.delta,
            rank,
            origin.base_model,
            out,
            transposed=origin.transposed,
            expert=_expert_of(run_dir, origin),
        )
    elif rank is not None:
        raise InputError("--rank is for --as adapter; a model holds the whole update")
    else:
        base = load_base(load_config(run_dir / CONFIG_FILE).model)
        report = export_model(merged.delta, base, out, base_sha256=origin.base_model_sha256)
    included = f" and of expert {report.expert}" if report.expert else ""
    _say_exported(report, form, f"{name}{included}", out)


def _export_arm(run_dir: Path, out: Path, name: str, *, form: ExportForm) -> None:
    if form == "adapter":
        raise InputError("an arm of MPU changes all weights, not those of an adapter: --as model")
    outcome, delta = read_unlearned(run_dir, name)
    base = load_base(load_run(run_dir / CONFIG_FILE).model)
    report = export_model(delta, base, out, base_sha256=outcome.base_model_sha256, shared=True)
    _say_exported(report, form, name, out)


def _say_exported(report: ExportReport, form: ExportForm, name: str, out: Path) -> None:
    stdout().print(
        f"{form} of {name}: relative error {report.relative_error:.3g} over "
        f"{len(report.tensors)} tensors\n{out}",
        markup=False,
        soft_wrap=True,
    )


def _expert_of(run_dir: Path, origin: MergeReport) -> Expert | None:
    """The expert a merge is relative to; it must still be the one it was."""
    if not origin.expert:
        return None
    chosen = load_config(run_dir / CONFIG_FILE).model
    expert = load_expert(chosen.expert or origin.expert, chosen.expert_revision)
    if expert.sha256 != origin.expert_sha256:
        raise InputError(
            f"the update was made on top of expert {origin.expert} with hash "
            f"{origin.expert_sha256[:12]}, but {expert.name} has {expert.sha256[:12]}; give the "
            "same expert"
        )
    return expert


def list_names(what: Listing) -> None:
    """Print names with the first line of what they stand for."""
    if what == "configs":
        rows = [(name, str(path)) for name, path in builtin_configs().items()]
    else:
        registry = _REGISTRIES[what]
        rows = [(name, _first_line(registry[name])) for name in registry]
    show_table(Table((what, ""), tuple(rows), names=2), stdout())


def _first_line(entry: type) -> str:
    return (entry.__doc__ or "").strip().partition("\n")[0]


def _split(given: Sequence[str]) -> tuple[str | None, list[str]]:
    """Tell the config's name, which comes first and has no ``=``, from the overrides."""
    if given and ("=" not in given[0] or Path(given[0]).is_file()):
        return given[0], list(given[1:])
    return None, list(given)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"option {text!r}: expected name=value")
    return key, value

"""The command line: ``run``, ``merge``, ``export``, ``check`` and ``list``.

Exit status: 0 done, 1 the run failed, 2 bad input. Results go to stdout, everything else to
stderr; stack traces only with ``--debug`` or ``FEDUNLEARN_DEBUG=1``.
"""

import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import click
import typer

from fedunlearn.aggregation import merge_summaries, parse_epsilon, read_merge, write_merge
from fedunlearn.assembly import merge_row
from fedunlearn.config import (
    RunConfig,
    builtin_configs,
    check_config,
    load_config,
    load_merge,
)
from fedunlearn.console import TerminalWatcher, show_report, show_table, stderr, stdout
from fedunlearn.errors import ConfigError, FedUnlearnError, InputError
from fedunlearn.export import export_adapter, export_model
from fedunlearn.merging import MERGE_METHODS
from fedunlearn.models.loading import load_base
from fedunlearn.objectives import OBJECTIVES
from fedunlearn.pipeline import CONFIG_FILE, MERGED_FOLDER, finish, prepare
from fedunlearn.registry import nearest
from fedunlearn.summary import open_summaries
from fedunlearn.tables import Table

DEBUG_VARIABLE = "FEDUNLEARN_DEBUG"

app = typer.Typer(
    name="fedunlearn",
    help="Federated unlearning for large language models, on Flower.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [KEY=VALUE]...",
        help="A name from `fedunlearn list configs` or a YAML file, then keys to override.",
        show_default=False,
    ),
]


class Listing(StrEnum):
    """What ``list`` can list."""

    merges = "merges"
    objectives = "objectives"
    configs = "configs"


class Form(StrEnum):
    """What ``export`` can write."""

    model = "model"
    adapter = "adapter"


def main() -> NoReturn:
    """Run the command line and exit."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command; return its exit status."""
    command = typer.main.get_command(app)
    try:
        result = command.main(list(arguments), prog_name="fedunlearn", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as fault:
        fault.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 1, arguments)
    except FedUnlearnError as fault:
        return _fail(str(fault), fault.exit_code, arguments)
    except Exception as fault:  # whatever it is, the user gets one line and a status
        text = f"unexpected {type(fault).__name__}: {fault}\n(a stack trace: add --debug)"
        return _fail(text, 1, arguments)


def _fail(text: str, status: int, arguments: Sequence[str]) -> int:
    if "--debug" in arguments or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        traceback.print_exc()
    stderr().print(f"fedunlearn: {text}", markup=False)
    return status


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help=f"Show stack traces; {DEBUG_VARIABLE}=1 does the same.")
    ] = False,
) -> None:
    """Federated unlearning for large language models, on Flower."""


@app.command()
def run(
    settings: _Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; by default runs/<time>-<name>.")
    ] = None,
    verbose: Annotated[bool, typer.Option(help="Let Flower and Ray log.")] = False,
    quiet: Annotated[bool, typer.Option(help="No progress bars.")] = False,
) -> None:
    """Unlearn with simulated clients: train, merge, evaluate, report."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, stream=sys.stderr)
    config = load_config(*_split(settings), local=True)
    run_dir = out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{config.name}"
    watcher = TerminalWatcher(stderr(), quiet=quiet)
    prepare(config, run_dir, watcher=watcher)
    warnings = _round(config, run_dir, watcher, verbose=verbose)
    show_report(finish(run_dir, config, warnings=warnings, watcher=watcher), run_dir, stdout())


def _round(
    config: RunConfig, run_dir: Path, watcher: TerminalWatcher, *, verbose: bool
) -> tuple[str, ...]:
    from fedunlearn.simulation import simulate  # Flower and Ray take seconds to import

    with watcher.stage("clients") as progress:
        return simulate(config, run_dir, progress=progress, verbose=verbose)


@app.command()
def check(settings: _Settings = None) -> None:
    """List every fault of a config, before anything starts."""
    source, overrides = _split(settings)
    if faults := check_config(source, overrides):
        raise ConfigError(faults)
    config = load_config(source, overrides)
    roles = [client.role for client in config.clients]
    stdout().print(
        f"{config.name}: no fault; {roles.count('forget')} forget and {roles.count('retain')} "
        f"retain clients, {len(config.merges)} merges, {len(config.sweep.gammas)} gammas for "
        f"{len(config.swept)} of them"
    )


@app.command()
def merge(
    summaries: Annotated[Path, typer.Argument(help="A run's folder or its summaries/ folder.")],
    out: Annotated[Path, typer.Option(help="Folder for delta.safetensors and merge.json.")],
    method: Annotated[str, typer.Option(help="See `fedunlearn list merges`.")] = "firm",
    option: Annotated[
        list[str] | None, typer.Option(help="Hyperparameter of the method, e.g. density=0.5.")
    ] = None,
    gamma: Annotated[float, typer.Option(help="Scale of the raw merge.")] = 1.0,
    alpha: Annotated[float, typer.Option(help="Fraction of Fisher entries kept.")] = 0.1,
    eps0: Annotated[float, typer.Option(help="Stabiliser of the divisions.")] = 1e-8,
    epsilon: Annotated[
        str, typer.Option(help="Budget: inf, a number, relative:0.3, or client=number,...")
    ] = "inf",
    solver: Annotated[str, typer.Option(help="newton (exact) or bisection (the paper's).")] = (
        "newton"
    ),
) -> None:
    """Merge stored summaries: the server's work, without Flower and without a model."""
    chosen = load_merge(
        {
            "method": method,
            "options": dict(_pair(text) for text in option or ()),
            "gamma": gamma,
            "alpha": alpha,
            "eps0": eps0,
            "epsilon": parse_epsilon(epsilon),
            "solver": solver,
        }
    )
    folder = summaries / "summaries" if (summaries / "summaries").is_dir() else summaries
    result = merge_summaries(open_summaries(folder), chosen)
    write_merge(result, out)
    row = merge_row(result.report)
    for warning in result.report.warnings:
        stderr().print(f"warning: {warning}", markup=False)
    stdout().print(
        f"{method}: norm {row.norm:.4g} ({row.raw_norm:.4g} before the projection), "
        f"{row.constrained_tensors} of {row.tensors} tensors constrained\n{out}",
        soft_wrap=True,
    )


@app.command()
def export(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="Folder for the export.")],
    method: Annotated[str, typer.Option(help="Name of the merge, as in merged/.")] = "firm",
    form: Annotated[
        Form, typer.Option("--as", help="A transformers model, or a PEFT adapter.")
    ] = Form.model,
    rank: Annotated[
        int | None, typer.Option(help="Rank of the adapter; by default full, without loss.")
    ] = None,
) -> None:
    """Write a merged update as a transformers model or a PEFT adapter."""
    merged = read_merge(_merged_folder(run_dir, method))
    origin = merged.report
    if form is Form.model:
        if rank is not None:
            raise InputError("--rank is for --as adapter; a model holds the whole update")
        base = load_base(load_config(run_dir / CONFIG_FILE).model)
        report = export_model(merged.delta, base, out, base_sha256=origin.base_model_sha256)
    else:
        report = export_adapter(
            merged.delta, rank, origin.base_model, out, transposed=origin.transposed
        )
    stdout().print(
        f"{form.value} of {method}: relative error {report.relative_error:.3g} over "
        f"{len(report.tensors)} tensors\n{out}",
        soft_wrap=True,
    )


def _merged_folder(run_dir: Path, name: str) -> Path:
    merged = run_dir / MERGED_FOLDER
    known = sorted(path.name for path in merged.iterdir()) if merged.is_dir() else []
    if not known:
        raise InputError(f"{run_dir} holds no {MERGED_FOLDER}/; did the run finish?")
    if name not in known:
        raise InputError(f"{merged} has no {name!r}{nearest(name, known)}")
    return merged / name


@app.command("list")
def list_names(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List merge methods, objectives or configs by name."""
    if what is Listing.configs:
        rows = [(name, str(path)) for name, path in builtin_configs().items()]
    else:
        registry = MERGE_METHODS if what is Listing.merges else OBJECTIVES
        rows = [(name, _first_line(registry[name])) for name in registry]
    show_table(Table((what.value, ""), tuple(rows)), stdout())


def _first_line(entry: type) -> str:
    return (entry.__doc__ or "").strip().splitlines()[0] if entry.__doc__ else ""


def _split(settings: Sequence[str] | None) -> tuple[str | None, list[str]]:
    """Tell the config's name, which comes first and has no ``=``, from the overrides."""
    given = list(settings or ())
    if given and ("=" not in given[0] or Path(given[0]).is_file()):
        return given[0], given[1:]
    return None, given


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"option {text!r}: expected name=value")
    return key, value

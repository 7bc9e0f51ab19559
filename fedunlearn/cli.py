"""The command line: runs, merges, sweeps, exports, evaluations, deployments, and what there is.

Exit status: 0 done, 1 the run failed, 2 bad input. Results go to stdout, everything else to
stderr; stack traces only with ``--debug`` or ``FEDUNLEARN_DEBUG=1``.

What the commands do is in :mod:`fedunlearn.commands`, which takes seconds to import (PyTorch,
transformers, Ray): it is imported when a command is run, so that help and typing errors are quick.
"""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import click
import typer

from fedunlearn.cli_deploy import deploy
from fedunlearn.cli_evaluation import evaluate, probe, retrain
from fedunlearn.errors import FedUnlearnError
from fedunlearn.names import OWN_THREADS
from fedunlearn.offline import go_offline

DEBUG_VARIABLE = "FEDUNLEARN_DEBUG"
_TYPER_INTERRUPTED = 130  # what Typer makes of a KeyboardInterrupt, without a word

app = typer.Typer(
    name="fedunlearn",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    suggest_commands=False,
)

_Given = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [KEY=VALUE]...",
        help="A name from `fedunlearn list configs` or a YAML file, then keys to override.",
        show_default=False,
    ),
]


def main() -> NoReturn:
    """Run the command line and exit."""
    go_offline()
    status = run_command(sys.argv[1:])
    if status and _somebody_waits():
        # A thread of Flower's waits for a client that is no more, and Python would wait for it.
        logging.shutdown()
        os._exit(status)
    sys.exit(status)


def _somebody_waits() -> bool:
    threads = [one for one in threading.enumerate() if one is not threading.main_thread()]
    return any(not one.daemon and not one.name.startswith(OWN_THREADS) for one in threads)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command; return its exit status."""
    command = typer.main.get_command(app)
    try:
        result = command.main(list(arguments), prog_name="fedunlearn", standalone_mode=False)
        if result == _TYPER_INTERRUPTED:
            return _fail("interrupted", 1, arguments)
        return result if isinstance(result, int) else 0
    except click.ClickException as fault:
        fault.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 1, arguments)
    except FedUnlearnError as fault:
        return _fail(str(fault), fault.exit_code, arguments)
    except Exception as fault:  # whatever it is, the user gets one line and a status
        text = f"unexpected {type(fault).__name__}: {fault} (fedunlearn --debug shows where)"
        return _fail(text, 1, arguments)


def _fail(text: str, status: int, arguments: Sequence[str]) -> int:
    if "--debug" in arguments or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        traceback.print_exc()
    print(f"fedunlearn: {text}", file=sys.stderr)
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
    given: _Given = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; by default runs/<time>-<name>.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Let Flower and Ray log.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="RUN[:RESULT]", help="Start from a finished run's merge or arm."
        ),
    ] = None,
) -> None:
    """Unlearn with simulated clients: train, merge, evaluate, report."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, stream=sys.stderr)
    from fedunlearn import commands

    commands.run(given or (), out, verbose=verbose, quiet=quiet, start=start)


@app.command()
def resume(
    run_dir: Annotated[Path, typer.Argument(help="Folder of a run that was interrupted.")],
    verbose: Annotated[bool, typer.Option("--verbose", help="Let Flower and Ray log.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Go on with an interrupted run: what is done is not done again."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, stream=sys.stderr)
    from fedunlearn import commands

    commands.resume(run_dir, verbose=verbose, quiet=quiet)


@app.command()
def verify(
    receipt: Annotated[Path, typer.Argument(help="A receipt.json, or the run's folder.")],
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="Of the server that signed.")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run", help="Where the files are; by default beside it.")
    ] = None,
) -> None:
    """Check a run's receipt: its seal, the files it names, and the receipt before it."""
    from fedunlearn import commands

    commands.verify(receipt, public_key=public_key, run_dir=run_dir)


@app.command()
def teach(
    out: Annotated[Path, typer.Option(help="Folder of the adapter, for model.expert.")],
    given: _Given = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Teach a model a config's `teach` section by LoRA: makes an expert adapter."""
    from fedunlearn import commands

    commands.teach(given or (), out, quiet=quiet)


@app.command()
def check(
    given: _Given = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Read data that is on the hub, too.")
    ] = False,
) -> None:
    """List every fault of a config, and data that is in two places, before anything starts."""
    from fedunlearn import commands

    commands.check(given or (), fetch=fetch)


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
    solver: Annotated[
        str, typer.Option(help="newton (exact) or bisection (the paper's).")
    ] = "newton",
    workers: Annotated[
        Literal["threads", "ray"],
        typer.Option(help="Who works: threads of this process, or a Ray cluster."),
    ] = "threads",
) -> None:
    """Merge stored summaries: the server's work, with no Flower and no model."""
    from fedunlearn import commands

    commands.merge(
        summaries,
        out,
        option or (),
        workers=workers,
        method=method,
        gamma=gamma,
        alpha=alpha,
        eps0=eps0,
        epsilon=epsilon,
        solver=solver,
    )


@app.command()
def export(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="Folder for the export.")],
    method: Annotated[
        str, typer.Option(help="Name of the merge or arm, as in merged/ or unlearned/.")
    ] = "firm",
    form: Annotated[
        Literal["model", "adapter"],
        typer.Option("--as", help="A transformers model, or a PEFT adapter."),
    ] = "model",
    rank: Annotated[
        int | None, typer.Option(help="Rank of the adapter; by default full, without loss.")
    ] = None,
) -> None:
    """Write a run's result as a transformers model or a PEFT adapter."""
    from fedunlearn import commands

    commands.export(run_dir, out, method, form=form, rank=rank)


@app.command()
def sweep(
    summaries: Annotated[Path, typer.Argument(help="A run's folder or its summaries/ folder.")],
    out: Annotated[Path, typer.Option(help="Folder of the sweep; an earlier one goes on.")],
    gamma: Annotated[str, typer.Option(help="Scales: numbers or start:stop:step, by commas.")],
    methods: Annotated[
        str, typer.Option(help="By commas, with options as in ties:density=0.3.")
    ] = "firm",
    epsilon: Annotated[
        str, typer.Option(help="Budgets by commas: inf, a number, relative:0.3.")
    ] = "inf",
    alpha: Annotated[str, typer.Option(help="Fractions of Fisher entries kept.")] = "0.1",
    eps0: Annotated[float, typer.Option(help="Stabiliser of the divisions.")] = 1e-8,
    solver: Annotated[
        str, typer.Option(help="newton (exact) or bisection (the paper's).")
    ] = "newton",
    domains: Annotated[
        str | None,
        typer.Option(help="Merge growing subsets of these forget domains, in order; or all."),
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(metavar="CONFIG", help="Measure every point by this config's evaluation."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Merge stored summaries at many scales and budgets, resuming where it stopped."""
    from fedunlearn import sweep_commands

    sweep_commands.sweep(
        summaries,
        out,
        methods=methods,
        gamma=gamma,
        epsilon=epsilon,
        alpha=alpha,
        eps0=eps0,
        solver=solver,
        domains=domains,
        evaluate=evaluate,
        quiet=quiet,
    )


@app.command()
def compare(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a sweep.")],
    at: Annotated[
        float | None,
        typer.Option(help="Gamma of the ablation table; by default what most variants share."),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(help="Variant to match with all others; by default every pair once."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of every interval.")] = 0.95,
    resamples: Annotated[int, typer.Option(help="Of the bootstrap over questions.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
) -> None:
    """Compare a sweep's points: matched forgetting, envelopes, frontier, norms."""
    from fedunlearn import sweep_commands

    sweep_commands.compare(
        folder, reference or (), at=at, confidence=confidence, resamples=resamples, seed=seed
    )


app.command()(evaluate)
app.command()(retrain)
app.add_typer(deploy, name="deploy")
app.command()(probe)


@app.command("list")
def list_names(
    what: Annotated[
        Literal["merges", "objectives", "sources", "metrics", "suites", "configs"],
        typer.Argument(help="What to list."),
    ],
) -> None:
    """List merge methods, objectives, data sources, metrics, suites or configs by name."""
    from fedunlearn import commands

    commands.list_names(what)


if __name__ == "__main__":
    main()

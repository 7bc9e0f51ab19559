"""The commands ``evaluate``, ``probe`` and ``retrain`` as the command line takes them.

As in :mod:`fedunlearn.cli`, what they do is imported only when they are run.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer


def evaluate(
    model: Annotated[
        str,
        typer.Argument(help="A model (hub id, folder or .gguf), a run's folder, or an adapter's."),
    ],
    suite: Annotated[
        str, typer.Option(help="See `fedunlearn list suites`; or a YAML file with its settings.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the results; an earlier one goes on.")],
    option: Annotated[
        list[str] | None, typer.Option(help="Setting of the suite, e.g. forget=forget05.")
    ] = None,
    merge: Annotated[
        str, typer.Option(help="Of a run: the merge to put on, as in merged/; or base.")
    ] = "firm",
    base: Annotated[
        str | None, typer.Option(help="Of an adapter: its base model, where it names none.")
    ] = None,
    retrained: Annotated[
        Path | None, typer.Option(help="Results of a retrained model, from `fedunlearn retrain`.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Model that the attack `reference` compares with.")
    ] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None, typer.Option(help="Of the weights in memory.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences a forward pass.")] = 32,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Measure a model by a benchmark, sample by sample, resuming where it stopped."""
    from fedunlearn import evaluation_commands

    evaluation_commands.evaluate(
        model,
        suite,
        option or (),
        out,
        merge=merge,
        base=base,
        retrained=retrained,
        reference=reference,
        dtype=dtype,
        device=device,
        batch_size=batch_size,
        quiet=quiet,
    )


def probe(
    model: Annotated[
        str, typer.Argument(help="The unlearned model, a run's folder, or an adapter's.")
    ],
    suite: Annotated[
        str, typer.Option(help="See `fedunlearn list suites`; or a YAML file with its settings.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the results; an earlier one goes on.")],
    override: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Settings of the probes, e.g. relearning.steps=[0,5]."
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Setting of the suite, e.g. forget=forget05.")
    ] = None,
    merge: Annotated[str, typer.Option(help="Of a run: the merge to put on.")] = "firm",
    base: Annotated[
        str | None, typer.Option(help="Of an adapter: its base model, where it names none.")
    ] = None,
    original: Annotated[
        str | None, typer.Option(help="Model before unlearning; of a run, what it started from.")
    ] = None,
    retrained: Annotated[
        str | None, typer.Option(help="Model trained without the forget data.")
    ] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None, typer.Option(help="Of the weights in memory.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences a forward pass.")] = 32,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Try to bring back what was unlearned: relearning, rounding, other prompts."""
    from fedunlearn import probe_commands

    probe_commands.run_probe(
        model,
        override or (),
        suite,
        option or (),
        out,
        merge=merge,
        base=base,
        original=original,
        retrained=retrained,
        dtype=dtype,
        device=device,
        batch_size=batch_size,
        quiet=quiet,
    )


def retrain(
    config: Annotated[str, typer.Argument(help="A YAML file; see docs/EVALUATION.md.")],
    out: Annotated[Path, typer.Option(help="Folder of the model and of its results.")],
    override: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys to override.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences a forward pass.")] = 32,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Train a model without the forget data, and keep its results for comparison."""
    from fedunlearn import evaluation_commands

    evaluation_commands.retrain(config, override or (), out, batch_size=batch_size, quiet=quiet)

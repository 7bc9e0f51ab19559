"""What ``probe`` does once the command line is read."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedunlearn.config import load_probes, load_suite
from fedunlearn.console import TerminalWatcher, show_table, stderr, stdout
from fedunlearn.evaluation import Result, Summary
from fedunlearn.evaluation.robustness import Subject, probe
from fedunlearn.evaluation_commands import BARE, Dtype, open_model
from fedunlearn.pipeline import CONFIG_FILE
from fedunlearn.tables import Table

_PARTS = ("unlearned", "original", "retrained")


def run_probe(
    source: str,
    overrides: Sequence[str],
    suite: str,
    options: Sequence[str],
    out: Path,
    *,
    merge: str,
    base: str | None,
    original: str | None,
    retrained: str | None,
    dtype: Dtype | None,
    device: str | None,
    batch_size: int,
    quiet: bool,
) -> None:
    """Probe a model, and show what came back.

    Args:
        source: the unlearned model, a run's folder, or an adapter's.
        overrides: settings of the probes, ``dotted.key=value`` each.
        suite: a name, or a YAML file.
        options: settings of the suite, ``name=value`` each.
        out: folder of the results.
        merge: of a run, the one to put on.
        base: of an adapter, its base model; ``None``: the one it names.
        original: the model before unlearning; ``None``: of a run, what it started from.
        retrained: a model trained without the forget data.
        dtype: of the weights; ``None``: the run's, or float32.
        device: ``None``: the run's, or auto.
        batch_size: sequences a forward pass.
        quiet: no progress bars.

    Raises:
        InputError: model, suite, data or settings cannot be used.
        RunError: relearning diverged.
    """
    chosen = load_probes(overrides)
    name, built = load_suite(suite, options)
    wanted: dict[str, Any] = {
        key: value for key, value in (("dtype", dtype), ("device", device)) if value
    }
    opened = partial(open_model, wanted=wanted)
    subjects = [Subject("unlearned", partial(opened, source, merge=merge, base=base))]
    if original is not None:
        subjects.append(Subject("original", partial(opened, original, merge=BARE, base=None)))
    elif (Path(source).expanduser() / CONFIG_FILE).is_file():
        subjects.append(Subject("original", partial(opened, source, merge=BARE, base=None)))
    if retrained is not None:
        subjects.append(Subject("retrained", partial(opened, retrained, merge=BARE, base=None)))
    with TerminalWatcher(stderr(), quiet=quiet).stage("probing") as progress:
        summary = probe(
            name, built, subjects, chosen, out, batch_size=batch_size, progress=progress
        )
    _show(summary, out)


def _show(summary: Summary, out: Path) -> None:
    console = stdout()
    show_table(
        Table(("probe / set / score", *_PARTS, "recovery", ""), tuple(_rows(summary))), console
    )
    for one in summary.results:
        if one.metric == "recovery" and not one.n:
            console.print(f"{one.name}: {one.reason}", markup=False, soft_wrap=True)
    for line in (*summary.limits[:2], str(out)):
        console.print(line, markup=False, soft_wrap=True)


def _rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    """A row for every probe of the leading score of every set."""
    found = {one.name: one for one in summary.results}
    shown: set[str] = set()
    for name in found:
        part, _, rest = name.partition("/")
        lead = rest.rpartition("/")[0]
        if part != "unlearned" or rest.count("/") > 2 or lead in shown:
            continue
        shown.add(lead)
        back = found.get(f"{rest}/recovery")
        values = [found.get(f"{one}/{rest}") for one in _PARTS]
        yield rest, *map(_value, values), _value(back), (back.flag or "").upper() if back else ""


def _value(one: Result | None) -> str:
    return "-" if one is None or one.value is None else f"{one.value:.3g}"

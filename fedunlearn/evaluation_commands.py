"""What ``evaluate`` and ``retrain`` do once the command line is read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from torch import Tensor

from fedunlearn.aggregation import read_merge
from fedunlearn.arms import UNLEARNED_FOLDER, read_unlearned
from fedunlearn.config import load_retraining, load_run, load_suite
from fedunlearn.config.evaluating import RetrainConfig
from fedunlearn.console import TerminalWatcher, show_table, stderr, stdout
from fedunlearn.errors import InputError
from fedunlearn.evaluation import (
    Bench,
    Evaluated,
    Result,
    evaluate_suite,
    identify,
    read_retrained,
    write_retrained,
)
from fedunlearn.export.joining import OnExpert
from fedunlearn.models.loading import LoadedModel, ModelSettings, load_base, no_progress_bars
from fedunlearn.models.merged import ADAPTER_CONFIG, load_with_adapter, with_update
from fedunlearn.pipeline import CONFIG_FILE, merged_folder
from fedunlearn.progress import Watcher
from fedunlearn.storage import claim_folder
from fedunlearn.tables import Table
from fedunlearn.training.retraining import kept_records, reteach
from fedunlearn.training.retraining import retrain as train_again
from fedunlearn.training.teaching import ensure_world

Dtype = Literal["float32", "bfloat16"]
BARE = "base"
RETRAINED_FILE = "retrained.json"


def evaluate(
    source: str,
    suite: str,
    options: Sequence[str],
    out: Path,
    *,
    merge: str,
    base: str | None,
    retrained: Path | None,
    reference: str | None,
    dtype: Dtype | None,
    device: str | None,
    batch_size: int,
    quiet: bool,
) -> None:
    """Measure a model by a suite, and show the results.

    Args:
        source: a model, a run's folder, or an adapter's.
        suite: a name, or a YAML file.
        options: settings of the suite, ``name=value`` each.
        out: folder of the results.
        merge: of a run, the one to put on; ``base``: none.
        base: of an adapter, its base model; ``None``: the one it names.
        retrained: results of a retrained model.
        reference: model of the attack ``reference``.
        dtype: of the weights; ``None``: the run's, or float32.
        device: ``None``: the run's, or auto.
        batch_size: sequences a forward pass.
        quiet: no progress bars.

    Raises:
        InputError: model, suite, data or retrained results cannot be used.
    """
    name, chosen = load_suite(suite, options)
    told = None if retrained is None else (str(retrained), read_retrained(retrained))
    wanted: dict[str, Any] = {
        key: value for key, value in (("dtype", dtype), ("device", device)) if value
    }
    model, update = open_model(source, merge=merge, base=base, wanted=wanted)
    other = None if reference is None else load_base(ModelSettings(path=reference, **wanted))
    watcher = TerminalWatcher(stderr(), quiet=quiet)
    with watcher.stage("evaluating") as progress:
        done = evaluate_suite(
            name,
            chosen,
            Bench(model, batch_size, reference=other),
            identify(model, update=update),
            out,
            retrained=told,
            progress=progress,
        )
    _show(done, out)


def open_model(
    source: str, *, merge: str, base: str | None, wanted: dict[str, Any]
) -> tuple[LoadedModel, str | None]:
    """Load what is to be measured: a model, a run's merge, or an adapter on its base model.

    Returns:
        The model, and the name of what was put on it.

    Raises:
        InputError: there is no such model, merge or adapter.
    """
    folder = Path(source).expanduser()
    if (folder / CONFIG_FILE).is_file():
        model = load_base(replace(load_run(folder / CONFIG_FILE).model, **wanted))
        delta = {} if merge == BARE else _update(model, folder, merge)
        return _with(model, delta), None if merge == BARE else merge
    if (folder / ADAPTER_CONFIG).is_file():
        settings = ModelSettings(path=base or str(folder), **wanted)
        return load_with_adapter(folder, settings), str(folder)
    if base is not None:
        raise InputError(f"--base is for an adapter; {source} has no {ADAPTER_CONFIG}")
    return load_base(ModelSettings(path=source, **wanted)), None


def _update(model: LoadedModel, run_dir: Path, name: str) -> Mapping[str, Tensor]:
    """What a run made under this name: a merge of FIRM's, or the result of an arm of MPU's."""
    delta: Mapping[str, Tensor]
    if (run_dir / UNLEARNED_FOLDER).is_dir():
        outcome, delta = read_unlearned(run_dir, name)
        made_for = outcome.base_model_sha256
    else:
        found = read_merge(merged_folder(run_dir, name))
        delta, made_for = found.delta, found.report.base_model_sha256
    if made_for != model.start_sha256:
        raise InputError(
            f"{name} was made for a model with hash {made_for[:12]}, but {model.label} has "
            f"{model.start_sha256[:12]}; leave out --dtype, or give the same model"
        )
    return delta


def _with(model: LoadedModel, delta: Mapping[str, Tensor]) -> LoadedModel:
    """Put an update, and the expert where there is one, on the weights for good."""
    if model.expert is None:
        return with_update(model, delta) if delta else model
    whole = with_update(model, OnExpert(delta, model.expert))
    return replace(whole, expert=None)


def retrain(
    source: str, overrides: Sequence[str], out: Path, *, batch_size: int, quiet: bool
) -> None:
    """Train a model without the forget data, save it, measure it, and keep what comparisons need.

    Args:
        source: a YAML file.
        overrides: ``dotted.key=value`` each.
        out: new or empty folder, for ``model/``, ``evaluation/`` and ``retrained.json``.
        batch_size: sequences a forward pass of the evaluation.
        quiet: no progress bars.

    Raises:
        InputError: the config, its data or its model cannot be used.
        RunError: training diverged.
    """
    config = load_retraining(source, overrides)
    name, suite = config.built_suite()
    watcher = TerminalWatcher(stderr(), quiet=quiet)
    with claim_folder(out):
        model = _trained(config, watcher)
        with no_progress_bars():
            model.model.save_pretrained(out / "model")
        cast(Any, model.tokenizer).save_pretrained(out / "model")
    identity = identify(model, update=f"retrained: {config.name}")
    with watcher.stage("evaluating") as progress:
        done = evaluate_suite(
            name, suite, Bench(model, batch_size), identity, out / "evaluation", progress=progress
        )
    write_retrained(out / RETRAINED_FILE, identity, done.sets, done.records)
    _show(done, out)


def _trained(config: RetrainConfig, watcher: Watcher) -> LoadedModel:
    if config.world is not None:
        with watcher.stage("teaching the embedded model") as progress:
            ensure_world(config.world, progress=progress)
    records = kept_records(config.data, config.without)
    start = load_base(config.model)
    with watcher.stage("retraining") as progress:
        if config.training is None:
            # the config refuses to have neither a training nor a world
            return reteach(start, records, cast(Any, config.world), progress=progress)
        model, _ = train_again(
            start,
            records,
            config.training,
            lora=config.lora,
            seed=config.seed,
            progress=progress,
        )
    return model


def _show(done: Evaluated, out: Path) -> None:
    results, console = done.summary.results, stdout()
    rows = tuple((one.name, _value(one), str(one.n), _note(one)) for one in results)
    show_table(Table(("result", "value", "n", ""), rows), console)
    for reason in dict.fromkeys(one.reason for one in results if one.reason):
        names = ", ".join(one.name for one in results if one.reason == reason)
        console.print(f"No value of {names}: {reason}", markup=False, soft_wrap=True)
    console.print(f"{done.summary.limits[0]}\n{out}", markup=False, soft_wrap=True)


def _value(one: Result) -> str:
    return "-" if one.value is None else f"{one.value:.4g}"


def _note(one: Result) -> str:
    if one.flag is not None:
        return one.flag.upper()
    return "" if one.interval is None else f"{one.interval.low:.3f} to {one.interval.high:.3f}"

"""``fedunlearn evaluate`` and ``fedunlearn retrain`` from the command line to the files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from fedunlearn.cli import run_command
from fedunlearn.config import load_config, load_retraining, load_suite
from fedunlearn.errors import ConfigError, InputError
from fedunlearn.evaluation import read_retrained, read_summary
from fedunlearn.models.loading import ModelSettings, load_base
from fedunlearn.pipeline import finish
from tests import hub_copies
from tests.pocket_run import pocket_tree, run_clients, write_config
from tests.world import POCKET, POCKET_WORLD, pocket_world

CONFIGS = Path(__file__).parents[1] / "configs" / "evaluation"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket_world(tmp_path_factory.mktemp("w") / "world")


@pytest.fixture(scope="module")
def suite(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("suite") / "own.yaml"
    file.write_text(yaml.safe_dump(own(world)), encoding="utf-8")
    return file


def own(world: Path) -> dict[str, Any]:
    data = world / "data" / "evaluation"
    one = {"name": "brewing", "kind": "forget", "data": str(data / "brewing.jsonl")}
    return {"suite": "own", "sets": [one], "max_new_tokens": 2}


def measured(source: Path, suite: Path, out: Path, *more: str) -> dict[str, float | None]:
    given = ["evaluate", str(source), "--suite", str(suite), "--out", str(out), "--quiet", *more]
    assert run_command(given) == 0
    return {one.name: one.value for one in read_summary(out).results}


def test_a_run_its_base_and_its_merge(world: Path, suite: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    config = load_config(write_config(tmp_path / "c.yaml", pocket_tree(world)))
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text((tmp_path / "c.yaml").read_text())
    run_clients(config, run_dir)
    report = finish(run_dir, config)
    merged = measured(run_dir, suite, tmp_path / "merged", "--merge", "sum")
    bare = measured(run_dir, suite, tmp_path / "bare", "--merge", "base")
    reported = report.scores["sum"]["brewing"].answer_probability
    assert reported is not None
    assert merged["brewing/answer_probability"] == pytest.approx(reported.mean, abs=1e-5)
    ratio = report.base["brewing"].truth_ratio
    assert ratio is not None
    assert bare["brewing/truth_ratio_geometric"] == pytest.approx(ratio.mean, abs=1e-5)
    assert read_summary(tmp_path / "merged").model.update == "sum"
    hashes = {read_summary(tmp_path / name).model.sha256 for name in ("merged", "bare")}
    assert len(hashes) == 2


def test_a_run_is_probed_beside_what_it_started_from(
    world: Path, suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    config = load_config(write_config(tmp_path / "c.yaml", pocket_tree(world)))
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text((tmp_path / "c.yaml").read_text())
    run_clients(config, run_dir)
    finish(run_dir, config)
    given = [
        *("probe", str(run_dir), "relearning.steps=[1]", "relearning.rows=1", "formats=[int8]"),
        *("--suite", str(suite), "--out", str(tmp_path / "out"), "--merge", "sum", "--quiet"),
    ]
    assert run_command([*given, "--retrained", str(world / "model")]) == 0
    shown = capsys.readouterr().out
    for stage in ("as-is", "prompts", "int8", "relearn-0", "relearn-1"):
        assert f"{stage}/brewing/rouge_l_recall" in shown
    assert "proves no erasure" in shown
    summary = read_summary(tmp_path / "out")
    assert summary.model.update == "sum"
    assert summary.beside["original"].sha256 == summary.beside["retrained"].sha256
    assert {one.split("/")[0] for one in summary.sets} == {"unlearned", "original", "retrained"}
    assert all((tmp_path / "out" / one.file).is_file() for one in summary.sets.values())


def test_an_adapter_is_measured_on_its_base(world: Path, suite: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(world / "model")
    config = LoraConfig(r=2, target_modules=["down_proj"], init_lora_weights=False)
    adapted = get_peft_model(model, config)
    adapted.save_pretrained(tmp_path / "adapter")
    merged = adapted.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    load_base(ModelSettings(path=str(world / "model"))).tokenizer.save_pretrained(  # type: ignore[attr-defined]
        tmp_path / "merged"
    )
    one = measured(tmp_path / "adapter", suite, tmp_path / "a")
    other = measured(tmp_path / "merged", suite, tmp_path / "b")
    for name, value in one.items():
        assert value == pytest.approx(other[name], abs=1e-5), name


def test_public_layouts_with_an_option(world: Path, tmp_path: Path) -> None:
    folder = hub_copies.wmdp(tmp_path / "wmdp")
    given = ["--option", f"path={folder}", "--option", "subsets=[bio]"]
    found = measured(world / "model", Path("wmdp"), tmp_path / "out", *given)
    assert set(found) == {"wmdp/accuracy", "bio/accuracy"}
    hub_copies.muse(tmp_path / "muse")
    given = [
        *("--option", f"path={tmp_path / 'muse'}", "--option", "corpus=books"),
        *("--option", "parts=[scal,sust]", "--option", "conventions=open_unlearning"),
    ]
    found = measured(world / "model", Path("muse"), tmp_path / "folds", *given)
    assert len(found) == 8


@pytest.mark.parametrize("lora", [None, {"rank": 2, "alpha": 4, "target_modules": ["down_proj"]}])
def test_a_retrained_model_is_what_quality_is_measured_by(
    world: Path, suite: Path, tmp_path: Path, lora: dict[str, Any] | None
) -> None:
    file, out = tmp_path / "retrain.yaml", tmp_path / "out"
    training = {"objective": {"name": "retain_nll"}, "learning_rate": 1e-3, "epochs": 1}
    tree = {**retraining(world), "training": training, "lora": lora}
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert run_command(["retrain", str(file), "--out", str(out), "--quiet"]) == 0
    told = ("--retrained", str(out / "retrained.json"))
    own_quality = measured(out / "model", suite, tmp_path / "same", *told)
    assert own_quality["brewing/forget_quality"] == 1.0
    found = measured(world / "model", suite, tmp_path / "base", *told)
    assert found["brewing/forget_quality"] is not None
    stored = read_retrained(out / "retrained.json").model
    assert stored.sha256 == read_summary(tmp_path / "same").model.sha256
    assert stored.sha256 != read_summary(tmp_path / "base").model.sha256


def retraining(world: Path) -> dict[str, Any]:
    data = world / "data"
    return {
        "name": "again",
        "model": {"path": str(world / "model")},
        "data": [str(data / "corpus.jsonl")],
        "without": [str(data / "forget" / "brewing-0.jsonl")],
        "suite": own(world),
    }


def test_the_world_s_recipe_is_used_again(world: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "retrain.yaml", tmp_path / "out"
    made = {
        "directory": str(world),
        "size": vars(POCKET_WORLD),
        "model": vars(POCKET),
        "epochs": 1,
        "threads": 1,
    }
    tree = {**retraining(world), "world": made, "without": []}
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert run_command(["retrain", str(file), "--out", str(out), "--quiet"]) == 0
    again = load_base(ModelSettings(path=str(out / "model")))
    assert again.sha256 == load_base(ModelSettings(path=str(world / "model"))).sha256


def test_what_cannot_be_left_out_is_refused(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "retrain.yaml"
    tree = {**retraining(world), "without": [str(world / "data/evaluation/utility.jsonl")]}
    tree |= {"data": [str(world / "data/retain/geography.jsonl")]}
    tree |= {"training": {"objective": {"name": "retain_nll"}}}
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert run_command(["retrain", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "are not in `data`" in capsys.readouterr().err


def test_faults_are_named(world: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown suite 'tfou'"):
        load_suite("tfou")
    with pytest.raises(InputError, match="no option 'forgt'; did you mean 'forget'"):
        load_suite("tofu", ["forgt=x"])
    with pytest.raises(ConfigError, match="does not exist"):
        load_retraining(str(tmp_path / "gone.yaml"))
    file = tmp_path / "r.yaml"
    file.write_text(yaml.safe_dump(retraining(world)), encoding="utf-8")
    with pytest.raises(ConfigError, match="training is required"):
        load_retraining(str(file))


@pytest.mark.parametrize("name", ["demo", "retrain_demo"])
def test_the_configs_that_come_along_are_sound(name: str) -> None:
    file = str(CONFIGS / f"{name}.yaml")
    if name == "demo":
        assert load_suite(file)[0] == "own"
    else:
        mine, demos = load_retraining(file), load_config("firm_demo")
        assert mine.world is not None
        assert demos.world is not None
        assert replace(mine.world, directory=demos.world.directory) == demos.world
        held = {client.data for client in demos.clients if client.role == "forget"}
        assert {str(Path(str(one)).expanduser()) for one in mine.without} == held

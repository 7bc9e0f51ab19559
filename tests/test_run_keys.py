"""What a Flower run may set, and what becomes of it."""

import tomllib
from pathlib import Path

import pytest

from fedunlearn.errors import ConfigError
from fedunlearn.run_keys import config_of, folder_of

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_the_keys_are_those_that_flower_lets_a_run_override() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["tool"]["flwr"]["app"]["config"]
    assert sorted(declared) == ["config", "out", "overrides"]
    assert config_of(declared).name == declared["config"]


def test_overrides_are_split_as_on_a_command_line() -> None:
    config = config_of({"config": "firm_demo", "overrides": "seed=7 'model.path=/two words'"})
    assert (config.seed, config.model.path) == (7, "/two words")


@pytest.mark.parametrize("text", ["1e-5", "1.0e-5", "'1e-5'"])
def test_a_float_in_toml_is_the_one_that_yaml_has(text: str) -> None:
    keys = tomllib.loads(f'config = "firm_demo"\noverrides = "retain.learning_rate={text}"')
    assert config_of(keys).retain.learning_rate == 1e-5


def test_faults_are_named() -> None:
    with pytest.raises(ConfigError, match="firm_demo"):
        config_of({"config": "firm_dmo"})
    with pytest.raises(ConfigError, match="sed"):
        config_of({"config": "firm_demo", "overrides": "sed=7"})
    with pytest.raises(ConfigError, match="overrides: No closing quotation"):
        config_of({"config": "firm_demo", "overrides": "name='x"})


def test_the_folder_is_absolute_and_named_after_time_and_run(tmp_path: Path) -> None:
    assert folder_of({"out": str(tmp_path)}, name="n", stamp="s") == tmp_path
    assert folder_of({"out": ""}, name="n", stamp="s") == Path.cwd() / "runs" / "s-n"

"""Where the app finds its config, and how it puts faults in words."""

from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedunlearn.client_app import describe, run_config_source
from fedunlearn.errors import ConfigError, RunError


def test_the_app_finds_its_config_by_the_keys_of_the_run(tmp_path: Path) -> None:
    asked = Context(
        run_id=1,
        node_id=5,
        node_config={},
        state=RecordDict(),
        run_config={"config": str(tmp_path / "absent.yaml"), "overrides": "seed=1 name=x"},
    )
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        run_config_source(asked)


def test_our_errors_are_told_as_they_are_and_others_with_their_type() -> None:
    assert describe(RunError("it broke")) == "it broke"
    assert describe(KeyError("x")) == "KeyError: 'x'"

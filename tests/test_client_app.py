"""Who a node is, and where it finds its config."""

from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedunlearn.client_app import describe, node_identity, run_config_source
from fedunlearn.errors import ConfigError, RunError
from fedunlearn.training.client_settings import ClientIdentity
from tests.strategies.federation import federation


def context(**node_config: bool | float | int | str) -> Context:
    keys = {key.replace("_", "-"): value for key, value in node_config.items()}
    return Context(run_id=1, node_id=5, node_config=keys, state=RecordDict(), run_config={})


def test_a_deployed_node_says_itself_who_it_is(tmp_path: Path) -> None:
    config = federation(tmp_path)
    node = context(client_id="h-1", role="retain", domain="law", data="/d.jsonl", partition_id=0)
    assert node_identity(node, config) == ClientIdentity(
        id="h-1", role="retain", domain="law", data="/d.jsonl"
    )
    more = context(
        client_id="h-2", role="forget", domain="law", data="/d", retain_data="/k", refusals="/r"
    )
    assert node_identity(more, config) == ClientIdentity(
        id="h-2", role="forget", domain="law", data="/d", retain_data="/k", refusals="/r"
    )


def test_a_simulated_node_is_the_client_with_its_number(tmp_path: Path) -> None:
    config = federation(tmp_path)
    assert node_identity(context(partition_id=1), config) == config.clients[1]
    with pytest.raises(ConfigError, match="num-supernodes"):
        node_identity(context(partition_id=3), config)


def test_every_missing_or_wrong_key_of_a_node_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        node_identity(context(role="keep", data="/d.jsonl"), federation(tmp_path))
    faults = "\n".join(caught.value.faults)
    assert "'client-id' is missing" in faults
    assert "'domain' is missing" in faults
    assert "role 'keep' is none of forget, retain" in faults
    with pytest.raises(ConfigError, match="4 faults"):
        node_identity(context(), federation(tmp_path))
    with pytest.raises(ConfigError, match=r"client-id '\.\./x' must be 1-64 letters"):
        node_identity(
            context(client_id="../x", role="retain", domain="d", data="f"), federation(tmp_path)
        )
    with pytest.raises(ConfigError, match="domain 'a/b' must be 1-64 printable characters"):
        node_identity(
            context(client_id="x", role="retain", domain="a/b", data="f"), federation(tmp_path)
        )


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

"""Which clients a node answers for, by its own configuration."""

from pathlib import Path

import pytest

from fedunlearn.errors import ConfigError
from fedunlearn.node_config import node_clients, read_node_file
from fedunlearn.training.client_settings import ClientIdentity

ONE = {"client-id": "h-1", "role": "retain", "domain": "law", "data": "/d.jsonl"}
LISTED = tuple(
    ClientIdentity(id=f"c-{number}", role="forget", domain="law", data="/d") for number in range(3)
)
TWO = """
[[clients]]
id = "h-forget"
role = "forget"
domain = "oncology"
data = "/d/forget.jsonl"
retain-data = "/d/keep.jsonl"
refusals = "/d/refusals.txt"

[[clients]]
id = "h-keep"
role = "retain"
domain = "general medicine"
data = {source = "tofu", split = "retain99"}
"""


def faults_of(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_node_file(path)
    return "\n".join(caught.value.faults)


def test_a_deployed_node_says_itself_who_it_is() -> None:
    h_1 = ClientIdentity(id="h-1", role="retain", domain="law", data="/d.jsonl")
    assert node_clients({**ONE, "partition-id": 0}, LISTED) == (h_1,)
    more = {**ONE, "role": "forget", "retain-data": "/k", "refusals": "/r"}
    assert node_clients(more) == (
        ClientIdentity(
            id="h-1", role="forget", domain="law", data="/d.jsonl", retain_data="/k", refusals="/r"
        ),
    )


def test_a_node_file_holds_any_number_of_clients_each_with_its_own_role(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(TWO, encoding="utf-8")
    assert node_clients({"node-file": str(tmp_path / "node.toml")}) == (
        ClientIdentity(
            id="h-forget",
            role="forget",
            domain="oncology",
            data="/d/forget.jsonl",
            retain_data="/d/keep.jsonl",
            refusals="/d/refusals.txt",
        ),
        ClientIdentity(
            id="h-keep",
            role="retain",
            domain="general medicine",
            data={"source": "tofu", "split": "retain99"},
        ),
    )


def test_a_simulated_node_is_the_client_with_its_number() -> None:
    assert node_clients({"partition-id": 1}, LISTED) == (LISTED[1],)
    with pytest.raises(ConfigError, match="num-supernodes"):
        node_clients({"partition-id": 3}, LISTED)


def test_every_missing_or_wrong_key_of_a_node_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        node_clients({"role": "keep", "data": "/d.jsonl"})
    faults = "\n".join(caught.value.faults)
    assert "'client-id' is missing" in faults
    assert "'domain' is missing" in faults
    assert "role 'keep' is none of forget, retain" in faults
    with pytest.raises(ConfigError, match="4 faults"):
        node_clients({})
    with pytest.raises(ConfigError, match=r"client-id '\.\./x' must be 1-64 letters"):
        node_clients({**ONE, "client-id": "../x"})
    with pytest.raises(ConfigError, match="domain 'a/b' must be 1-64 printable characters"):
        node_clients({**ONE, "domain": "a/b"})


def test_data_in_braces_is_a_source_and_its_faults_are_named() -> None:
    (tofu,) = node_clients({**ONE, "data": '{"source": "tofu", "split": "forget01"}'})
    assert tofu.data == {"source": "tofu", "split": "forget01"}
    with pytest.raises(ConfigError, match="node-config: data: Expecting"):
        node_clients({**ONE, "data": "{source"})
    with pytest.raises(
        ConfigError, match=r"node-config: data names no source: unknown .*'tofuu'.*mean 'tofu'"
    ):
        node_clients({**ONE, "data": '{"source": "tofuu"}'})


def test_a_node_file_and_keys_are_not_mixed() -> None:
    with pytest.raises(ConfigError, match="node-file and role: give one or the other"):
        node_clients({"node-file": "/n.toml", "role": "forget"})


def test_every_fault_of_a_node_file_is_named_with_its_client(tmp_path: Path) -> None:
    text = TWO.replace("h-keep", "h-forget").replace('"retain"', '"keep"')
    text = text.replace("/d/forget.jsonl", "forget.jsonl").replace("retain-data", "retain_data")
    text = text.replace('domain = "oncology"\n', "")
    faults = faults_of(tmp_path / "node.toml", text)
    assert "clients.0.domain: required, but not given" in faults
    assert "clients.0.retain_data: unknown key; did you mean 'retain-data'?" in faults
    assert "clients.0.data: 'forget.jsonl' must be an absolute path" in faults
    assert "clients.1.role: 'keep' is none of forget, retain" in faults
    assert "id 'h-forget' is used by 2 clients" in faults


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", r"no client; add a table \[\[clients\]\]"),
        ("clients = 3", "no client"),
        ("clients = [3]", "clients.0.3: expected a table"),
        ("[[client]]", "unknown key 'client'; did you mean 'clients'"),
        ("[[clients]]\nid = 3\nrole = 4\ndomain = []\ndata = 5", "id: 3 must be a text"),
        ("[[clients", "is not TOML"),
    ],
)
def test_a_node_file_that_is_none_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "node.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=fault):
        read_node_file(tmp_path / "node.toml")


def test_a_node_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml cannot be read: No such file"):
        read_node_file(tmp_path / "gone.toml")

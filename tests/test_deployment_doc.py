"""docs/DEPLOYMENT.md: its commands are those that `deploy init` writes, its facts are facts."""

import contextlib
import io
import re
import tomllib
from pathlib import Path

from fedunlearn.cli import run_command
from fedunlearn.deployment.gate import MAX_BODY
from fedunlearn.node_config import read_node_file
from tests.deployment import ROOT
from tests.secure_deployment import written_commands

PAGE = (ROOT / "docs" / "DEPLOYMENT.md").read_text(encoding="utf-8")


def test_its_commands_are_those_of_the_readme_that_its_first_one_writes(tmp_path: Path) -> None:
    first, *rest = written_commands(PAGE)
    folder = tmp_path / "federation"
    shown = first[first.index("init") + 1]
    assert first[0] == "fedunlearn"
    given = [str(folder) if word == shown else word for word in first[1:]]
    with contextlib.redirect_stdout(io.StringIO()):
        assert run_command(given) == 0
    readme = (folder / "README.md").read_text().replace(str(folder), shown)
    written = written_commands(readme)
    assert all(command in written for command in rest)
    assert {command[0] for command in rest} == {
        *("flower-superlink", "fedunlearn", "export", "flwr", "flower-supernode")
    }
    assert "federation.expected_clients: 3" in readme
    assert "federation.expected_clients: 3" in PAGE


def test_every_option_of_the_check_is_explained() -> None:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert run_command(["deploy", "check", "--help"]) == 0
    for option in set(re.findall(r"--[a-z0-9-]+", shown.getvalue())) - {"--help"}:
        assert f"`{option}`" in PAGE, option


def test_its_node_file_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert tomllib.loads(block)
    (tmp_path / "node.toml").write_text(block, encoding="utf-8")
    assert [client.id for client in read_node_file(tmp_path / "node.toml")] == [
        *("h-forget", "h-keep")
    ]


def test_the_gates_limit_is_the_one_it_says() -> None:
    assert f"{MAX_BODY // 2**20} MiB" in PAGE

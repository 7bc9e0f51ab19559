"""The server's root: the round with its limits, and the whole run that Flower starts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedunlearn import server_app
from fedunlearn.client_app import make_client_app
from fedunlearn.config import RunConfig
from fedunlearn.errors import RunError
from fedunlearn.events import read_events
from tests.strategies.federation import TableGrid, app_nodes, federation, flower_task, job


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    with flower_task():
        yield


def grid_of(config: RunConfig) -> TableGrid:
    app = make_client_app(lambda _: config, run_job=job)
    return TableGrid(app_nodes(app, range(len(config.clients))))


def test_a_round_returns_its_warnings(tmp_path: Path) -> None:
    config = federation(tmp_path, "raises-1", allow_partial=True)
    (warning,) = server_app.federate(grid_of(config), config, tmp_path / "run")
    assert warning.endswith("the data of 'raises-1' in 'brewing' is not unlearned")


def test_a_failed_round_is_in_the_log_before_it_is_raised(tmp_path: Path) -> None:
    config = federation(tmp_path, "raises-1")
    with pytest.raises(RunError, match="ValueError: boom"):
        server_app.federate(grid_of(config), config, tmp_path / "run")
    last = read_events(tmp_path / "run" / "events.jsonl")[-1]
    assert last["event"] == "round_failed"
    assert "boom" in last["error"]


def test_the_config_says_how_many_clients_a_run_without_a_list_waits_for(tmp_path: Path) -> None:
    config = federation(tmp_path)
    grid = grid_of(config)
    settings = replace(config.federation, expected_clients=2)
    unlisted = replace(config, clients=(), federation=settings)
    with pytest.raises(RunError, match="the run expects 2"):
        server_app.federate(grid, unlisted, tmp_path / "run")


def test_a_flower_run_goes_from_the_config_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = federation(tmp_path)
    monkeypatch.setattr(server_app, "config_of", lambda keys: config)
    context = Context(
        run_id=1,
        node_id=1,
        node_config={},
        state=RecordDict(),
        run_config={"out": str(tmp_path / "run")},
    )
    server_app.app(grid_of(config), context)
    for name in ("config.yaml", "events.jsonl", "report.json", "report.md", "merged/firm"):
        assert (tmp_path / "run" / name).exists(), name

"""Nodes that answer for several clients: the same result as with a node for each."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedunlearn.client_app import make_client_app
from fedunlearn.config import AnyConfig, MpuConfig, RunConfig
from fedunlearn.errors import RunError
from fedunlearn.events import read_events
from fedunlearn.rounds import Addressee
from fedunlearn.server_app import federate
from fedunlearn.training.client_settings import ClientIdentity
from strategies import records
from strategies.exchange import Question, from_replies
from tests.strategies.copies import copies_config, copy_job
from tests.strategies.federation import Node, TableGrid, app_nodes, federation, flower_task, job

C = TypeVar("C", RunConfig, MpuConfig)


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    with flower_task():
        yield


def node_file(path: Path, clients: Sequence[ClientIdentity]) -> Path:
    keys = ("id", "role", "domain", "data")
    tables = ["\n".join(f"{key} = '{getattr(one, key)}'" for key in keys) for one in clients]
    path.write_text("".join(f"[[clients]]\n{table}\n" for table in tables), encoding="utf-8")
    return path


def deployed(app: ClientApp, node_id: int, file: Path) -> Node:
    context = Context(
        run_id=1,
        node_id=node_id,
        node_config={"node-file": str(file)},
        state=RecordDict(),
        run_config={},
    )
    return lambda message: app(message, context)


def app_of(config: AnyConfig) -> ClientApp:
    return make_client_app(lambda _: config, run_job=job, run_copy_job=copy_job)


def two_nodes(config: AnyConfig, folder: Path, *, first: Sequence[int]) -> TableGrid:
    """One node with the clients of these places, another with the others."""
    app = app_of(config)
    held: dict[int, list[ClientIdentity]] = {200: [], 201: []}
    for place, client in enumerate(config.clients):
        held[200 if place in first else 201].append(client)
    files = {node: node_file(folder / f"{node}.toml", them) for node, them in held.items()}
    return TableGrid({node: deployed(app, node, file) for node, file in files.items()})


def unlisted(config: C, *, clients: int, nodes: int | None) -> C:
    chosen = replace(config.federation, expected_clients=clients, expected_nodes=nodes)
    return replace(config, clients=(), federation=chosen)


def tensors(run_dir: Path) -> dict[str, bytes]:
    found = sorted(run_dir.rglob("*.safetensors"))
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in found}


def test_a_node_that_forgets_and_retains_sends_a_summary_for_each(tmp_path: Path) -> None:
    config = federation(tmp_path, "f-3")
    alone = TableGrid(app_nodes(app_of(config), range(4)))
    federate(alone, config, tmp_path / "alone")
    together = two_nodes(config, tmp_path, first=(0, 2))  # brewing to forget, geography to keep
    asked = unlisted(config, clients=4, nodes=2)
    federate(together, asked, tmp_path / "together")
    assert len(together.sent) == 2 + 4
    kept = tensors(tmp_path / "together")
    assert len(kept) == 2 * 4
    assert kept == tensors(tmp_path / "alone")
    (hands,) = [e for e in read_events(tmp_path / "together/events.jsonl") if "clients" in e]
    assert [(one["client_id"], one["node_id"]) for one in hands["clients"]] == [
        ("f-1", 200),
        ("f-2", 201),
        ("f-3", 201),
        ("r-1", 200),
    ]


def test_a_node_with_two_clients_unlearns_on_each_copy_once_for_each(tmp_path: Path) -> None:
    config = copies_config(tmp_path, "f-2")
    alone = TableGrid(app_nodes(app_of(config), range(3)))
    federate(alone, config, tmp_path / "alone")
    together = two_nodes(config, tmp_path, first=(0, 1))
    asked: MpuConfig = unlisted(config, clients=3, nodes=2)
    federate(together, asked, tmp_path / "together")
    assert tensors(tmp_path / "together") == tensors(tmp_path / "alone") != {}


def test_a_client_without_data_is_named_and_its_nodes_other_client_takes_part(
    tmp_path: Path,
) -> None:
    config = federation(tmp_path)
    gone = replace(config.clients[2], data=str(tmp_path / "gone.jsonl"))
    broken = replace(config, clients=(*config.clients[:2], gone))
    grid = two_nodes(broken, tmp_path, first=(0, 2))
    with pytest.raises(RunError, match=r"retain client 'r-1' \(geography\): .*gone\.jsonl") as told:
        federate(grid, unlisted(broken, clients=3, nodes=2), tmp_path / "run")
    assert "1 of 3 clients" in str(told.value)
    partial = unlisted(broken, clients=3, nodes=2)
    partial = replace(partial, federation=replace(partial.federation, allow_partial=True))
    warning, note, *_ = federate(grid, partial, tmp_path / "partial")
    assert warning.endswith("the data of 'r-1' in 'geography' is not protected")
    assert "nothing constrains" in note
    assert len(list((tmp_path / "partial/summaries").iterdir())) == 2


def test_more_clients_than_the_run_expects_are_refused_on_however_many_nodes(
    tmp_path: Path,
) -> None:
    config = federation(tmp_path)
    grid = two_nodes(config, tmp_path, first=(0, 2))
    with pytest.raises(RunError, match=r"3 clients answered .* the run expects 2"):
        federate(grid, unlisted(config, clients=2, nodes=2), tmp_path / "run")


def test_an_id_that_two_nodes_use_is_named_with_both(tmp_path: Path) -> None:
    config = federation(tmp_path)
    twins = replace(config, clients=(*config.clients[:2], replace(config.clients[2], id="f-1")))
    grid = two_nodes(twins, tmp_path, first=(0,))
    told = r"'f-1' is used by 2 clients \(forget/brewing at node 200, retain/geography at node 201"
    with pytest.raises(RunError, match=told):
        federate(grid, unlisted(twins, clients=3, nodes=2), tmp_path / "run")


def test_a_node_does_not_answer_for_a_client_that_is_not_its_own(tmp_path: Path) -> None:
    config = federation(tmp_path)
    grid = two_nodes(config, tmp_path, first=(0,))
    task = Question("train", lambda who, s: records.task_content(who.client_id, "{}", s), "1")
    asked: list[Message] = [task.to(Addressee(200, "f-2"), 60.0)]
    (answer,) = from_replies(grid.send_and_receive(asked))
    assert answer.sender == Addressee(200, "f-2")
    assert answer.content is not None
    failure = records.read_failure(answer.content)
    assert failure is not None
    assert failure.reason == "the server asks for client 'f-2', but this node has f-1"

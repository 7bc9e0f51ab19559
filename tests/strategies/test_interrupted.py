"""A server that is killed in mid-round and started again: same bits, only the missing are asked."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message

from fedunlearn.cli import run_command
from fedunlearn.config import RunConfig
from fedunlearn.data.records import write_jsonl
from fedunlearn.errors import RunError
from fedunlearn.events import read_events
from fedunlearn.pipeline import finish, prepare
from fedunlearn.server_app import federate
from fedunlearn.summary import files
from strategies.firm import FirmStrategy
from tests.strategies.federation import Node, TableGrid, federation, flower_task
from tests.strategies.test_firm import delta_hash, nodes_of, stored, strategy_of


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    threads = torch.get_num_threads()
    with flower_task():
        yield
    torch.set_num_threads(threads)


class Counting:
    """Nodes that note which client was asked to train, and may kill the server."""

    def __init__(self, config: RunConfig, *, kill_at: int | None = None) -> None:
        self.trained: list[str] = []
        self._config, self._kill_at = config, kill_at
        self.nodes: dict[int, Node] = {
            number: self._wrapped(number, node) for number, node in nodes_of(config).items()
        }

    def _wrapped(self, number: int, node: Node) -> Node:
        def answer(message: Message) -> Message | None:
            if message.metadata.message_type == "train":
                if len(self.trained) == self._kill_at:
                    raise KeyboardInterrupt
                self.trained.append(self._config.clients[number - 100].id)
            return node(message)

        return answer

    def grid(self) -> TableGrid:
        return OneByOne(self.nodes)


class OneByOne(TableGrid):
    """Hands over one reply a poll, as real clients that finish one after the other."""

    def pull_messages(self, message_ids: Any) -> Any:
        return super().pull_messages(list(message_ids)[:1])


def interrupted(config: RunConfig, run_dir: Path, *, after: int) -> None:
    """A round whose server is gone after so many uploads."""
    with pytest.raises(KeyboardInterrupt):
        strategy_of(config, run_dir).run(Counting(config, kill_at=after).grid())


@pytest.mark.parametrize("after", [0, 1, 2])
def test_only_the_missing_are_asked_and_the_bits_are_the_same(after: int, tmp_path: Path) -> None:
    config, whole, cut = federation(tmp_path), tmp_path / "whole", tmp_path / "cut"
    strategy_of(config, whole).run(Counting(config).grid())
    interrupted(config, cut, after=after)
    assert not (cut / "summaries").exists()
    again = Counting(config)
    strategy = strategy_of(config, cut, salt="another")
    strategy.run(again.grid())
    assert again.trained == ["f-1", "f-2", "r-1"][after:]
    assert delta_hash(cut) == delta_hash(whole)
    assert not (cut / ".incoming").exists()
    assert not (cut / ".round.json").exists()
    assert strategy.warnings == ()
    kept = [one for one in read_events(cut / "events.jsonl") if one["event"] == "kept"]
    assert [one["client_id"] for one in kept] == ["f-1", "f-2"][:after]


def test_a_round_that_failed_goes_on_with_those_that_delivered(tmp_path: Path) -> None:
    config = federation(tmp_path)
    first, second = Counting(config), Counting(config)
    mute = first.nodes[101]
    first.nodes[101] = lambda m: None if m.metadata.message_type == "train" else mute(m)
    with pytest.raises(RunError, match="'f-2'"):
        strategy_of(config, tmp_path / "run").run(TableGrid(first.nodes))
    strategy_of(config, tmp_path / "run").run(second.grid())
    assert second.trained == ["f-2"]
    assert stored(tmp_path / "run") == ["f-1", "f-2", "r-1"]


def asked_again(config: RunConfig, run_dir: Path) -> list[str]:
    again = Counting(config)
    strategy_of(config, run_dir).run(again.grid())
    return again.trained


def test_what_is_of_another_task_is_asked_for_again(tmp_path: Path) -> None:
    config = federation(tmp_path)
    interrupted(config, tmp_path / "run", after=2)
    assert asked_again(replace(config, seed=5), tmp_path / "run") == ["f-1", "f-2", "r-1"]


def test_a_client_whose_data_changed_is_asked_again(tmp_path: Path) -> None:
    config = federation(tmp_path)
    interrupted(config, tmp_path / "run", after=2)
    other = tmp_path / "other.jsonl"
    write_jsonl(other, [{"question": "Who?", "answer": "Nobody at all."}])
    moved = replace(config.clients[1], data=str(other))
    changed = replace(config, clients=(config.clients[0], moved, config.clients[2]))
    assert asked_again(changed, tmp_path / "run") == ["f-2", "r-1"]


@pytest.mark.parametrize("harm", ["truncated", "half a folder"])
def test_a_damaged_upload_is_asked_for_again(harm: str, tmp_path: Path) -> None:
    config, run_dir = federation(tmp_path), tmp_path / "run"
    interrupted(config, run_dir, after=2)
    spooled = run_dir / ".incoming" / "f-1"
    if harm == "truncated":
        content = (spooled / "fisher.safetensors").read_bytes()
        (spooled / "fisher.safetensors").write_bytes(content[:-10])
    else:
        spooled.rename(run_dir / ".incoming" / ".f-1.7.partial")
    assert asked_again(config, run_dir) == ["f-1", "r-1"]
    assert stored(run_dir) == ["f-1", "f-2", "r-1"]


def test_a_full_disk_on_the_server_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run_dir = federation(tmp_path), tmp_path / "run"

    def full(path: Path, tensors: object, **_: object) -> None:
        if "f-2" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, tensors)  # type: ignore[arg-type]

    write = files.write_tensors
    monkeypatch.setattr(files, "write_tensors", full)
    with pytest.raises(RunError, match=r"f-2 was not written: No space left .* make room"):
        strategy_of(config, run_dir).run(Counting(config).grid())
    assert [path.name for path in (run_dir / ".incoming").iterdir()] == ["f-1"]
    assert not (run_dir / "summaries").exists()
    monkeypatch.undo()
    assert asked_again(config, run_dir) == ["f-2", "r-1"]


def test_a_killed_run_is_resumed_from_the_command_line_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, whole, cut = federation(tmp_path), tmp_path / "whole", tmp_path / "cut"
    for run_dir in (whole, cut):
        prepare(config, run_dir, local=True)
    told = federate(Counting(config).grid(), config, whole)
    finish(whole, config, warnings=told)
    with pytest.raises(KeyboardInterrupt):
        federate(Counting(config, kill_at=2).grid(), config, cut)
    again = Counting(config)
    monkeypatch.setattr(
        "fedunlearn.commands.simulate",
        lambda config, run_dir, **_: federate(again.grid(), config, run_dir),
    )
    assert run_command(["resume", str(cut), "--quiet"]) == 0
    assert again.trained == ["r-1"]
    name = Path("merged") / "firm" / "delta.safetensors"
    assert (cut / name).read_bytes() == (whole / name).read_bytes()


def test_flowers_own_loop_asks_everybody(tmp_path: Path) -> None:
    """It has no way to bring summaries from before, so it does not count on them."""
    config = federation(tmp_path)
    interrupted(config, tmp_path / "run", after=2)
    strategy: FirmStrategy = strategy_of(config, tmp_path / "run")
    messages = strategy.configure_train(
        1, ArrayRecord(), ConfigRecord(), TableGrid(nodes_of(config))
    )
    assert len(list(messages)) == 3

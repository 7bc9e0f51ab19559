"""MPU's strategy against real clients in this process."""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from torch import Tensor

from fedunlearn.arms import Bench
from fedunlearn.client_app import make_client_app
from fedunlearn.config import ArmSettings, MpuConfig
from fedunlearn.copies.update import CopyTicket
from fedunlearn.errors import RunError
from fedunlearn.events import EventLog, read_events
from fedunlearn.instructions import encode_copy_instructions
from fedunlearn.rounds import RoundRules
from strategies.attendance import Attendance
from strategies.exchange import Patience
from strategies.mpu import MpuStrategy
from tests.strategies.copies import ARM, LORA_ARM, copies_config, copy_job
from tests.strategies.federation import Clock, Node, TableGrid, app_nodes, flower_task


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    with flower_task():
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> MpuConfig:
    return copies_config(tmp_path_factory.mktemp("copies"))


def nodes_of(config: MpuConfig) -> dict[int, Node]:
    app = make_client_app(lambda _: config, run_copy_job=copy_job)
    return app_nodes(app, range(len(config.clients)))


def instruct(chosen: ArmSettings, ticket: CopyTicket) -> str:
    return encode_copy_instructions(chosen.instructions(0, ticket))


def strategy_of(config: MpuConfig, run_dir: Path) -> MpuStrategy:
    """The strategy of the only arm."""
    clock = Clock()
    attendance = Attendance(
        rules=RoundRules(
            nodes_s=2.0,
            handshake_s=2.0,
            deadline_s=60.0,
            allow_partial=config.federation.allow_partial,
            outliers=config.federation.outliers,
        ),
        events=EventLog(run_dir / "events.jsonl", clock=lambda: 0.0),
        patience=Patience(clock=clock, sleep=clock.sleep),
        expected=config.clients,
    )
    (arm,) = Bench(config, run_dir).arms()
    return MpuStrategy(
        arm.rounds,
        instruct=partial(instruct, arm.settings),
        attendance=attendance,
        spool=run_dir / ".incoming",
        lora=arm.settings.lora,
    )


def run(config: MpuConfig, run_dir: Path, grid: TableGrid | None = None) -> Mapping[str, Tensor]:
    strategy = strategy_of(config, run_dir)
    strategy.run(grid or TableGrid(nodes_of(config)))
    return strategy.rounds.weights


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_rounds_and_copies_run_and_every_reply_is_logged(config: MpuConfig, tmp_path: Path) -> None:
    grid = TableGrid(nodes_of(config))
    weights = run(config, tmp_path, grid)
    events = read_events(tmp_path / "events.jsonl")
    replies = [e for e in events if e["event"] == "copy_reply"]
    places = [(e["client_id"], e["server_round"], e["copy"]) for e in replies]
    assert sorted(places) == sorted(
        (c, r, k) for c in ("f-1", "r-1") for r in (1, 2) for k in (1, 2)
    )
    assert all(e["training"]["steps"] == 1 for e in replies)
    assert not (tmp_path / ".incoming").exists()
    assert not same(weights, Bench(config, tmp_path)._weights)


def test_the_order_of_replies_does_not_matter(config: MpuConfig, tmp_path: Path) -> None:
    def shuffled(replies: list[Message]) -> list[Message]:
        return random.Random(7).sample(replies, len(replies))[::-1]

    plain = run(config, tmp_path / "a")
    mixed = run(config, tmp_path / "b", TableGrid(nodes_of(config), order=shuffled))
    assert same(plain, mixed)


def test_clients_never_see_the_server_s_weights_or_a_seed_of_its_secrets(
    config: MpuConfig, tmp_path: Path
) -> None:
    grid = TableGrid(nodes_of(config))
    run(config, tmp_path, grid)
    secret = Bench(config, tmp_path)._weights
    copies = [m for m in grid.sent if m.metadata.message_type == "train.copy"]
    assert len(copies) == 8
    for message in copies:
        assert "secret" not in str(message.content.config_records["task"]["instructions"])
        for name, array in message.content.array_records["arrays"].items():
            published = torch.from_numpy(array.numpy().copy())
            equal = (published == secret[name]).float().mean().item()
            assert equal < 0.02, (name, equal)  # a permuted norm may hit a value by chance


def test_adapters_travel_as_factors(config: MpuConfig, tmp_path: Path) -> None:
    chosen = replace(config, arms={"lora": LORA_ARM})
    strategy = strategy_of(chosen, tmp_path)
    strategy.run(TableGrid(nodes_of(chosen)))
    before = Bench(chosen, tmp_path)._weights
    moved = [n for n, w in strategy.rounds.weights.items() if not torch.equal(w, before[n])]
    assert moved == [f"model.layers.{layer}.mlp.down_proj.weight" for layer in (0, 1)]
    dense = sum(4 * before[name].numel() for name in moved)
    assert strategy.largest_update < dense / 2


FAULTS = {
    "raises-1": "ValueError: boom",
    "nan-1": "has an entry that is not finite",
    "shape-1": "has shape (400, 31), expected (400, 32)",
    "key-1": "was not asked for; did you mean",
    "lacking-1": "is missing",
    "zero-1": "exactly zero",
    "impostor-1": "it sent an update of client 'f-1'",
    "stale-1": "for copy 1 of round 7",
    "other-1": "it is not used",
}


@pytest.mark.parametrize(("client_id", "reason"), FAULTS.items())
def test_a_bad_client_is_named_and_nothing_is_averaged(
    client_id: str, reason: str, tmp_path: Path
) -> None:
    config = copies_config(tmp_path, client_id)
    strategy = strategy_of(config, tmp_path / "run")
    with pytest.raises(RunError) as caught:
        strategy.run(TableGrid(nodes_of(config)))
    text = str(caught.value)
    assert "copy 1 of round 1 of 'mpu' lacks the updates of 1 clients" in text
    assert f"forget client '{client_id}' (brewing)" in text
    assert reason in text
    assert same(strategy.rounds.weights, Bench(config, tmp_path)._weights)


@pytest.mark.parametrize("client_id", ["nan-1", "late-1"])
def test_where_allowed_the_round_begins_again_without_it(client_id: str, tmp_path: Path) -> None:
    """Also when the client fails in the second copy, with the first one's update already in."""
    config = copies_config(tmp_path, client_id, allow_partial=True)
    strategy = strategy_of(config, tmp_path / "run")
    strategy.run(TableGrid(nodes_of(config)))
    assert sorted(strategy.rounds.clients) == ["f-1", "r-1"]
    (absent,) = strategy.attendance.absent
    assert absent.consequence == f"the data of '{client_id}' in 'brewing' is not unlearned"
    honest = replace(config, clients=config.clients[:2])
    assert same(strategy.rounds.weights, run(honest, tmp_path / "honest"))


def test_a_client_whose_reply_is_lost_is_asked_again(config: MpuConfig, tmp_path: Path) -> None:
    nodes, lost = nodes_of(config), []

    def flaky(message: Message) -> Message | None:
        if message.metadata.message_type == "train.copy" and not lost:
            lost.append(message)
            return None
        return nodes[100](message)

    weights = run(config, tmp_path / "a", TableGrid({**nodes, 100: flaky}))
    assert len(lost) == 1
    assert same(weights, run(config, tmp_path / "b"))


def test_a_client_that_stays_silent_fails_the_run(config: MpuConfig, tmp_path: Path) -> None:
    nodes = nodes_of(config)

    def silent(message: Message) -> Message | None:
        return None if message.metadata.message_type == "train.copy" else nodes[101](message)

    with pytest.raises(RunError, match=r"retain client 'r-1' \(geography\): its update did not"):
        run(config, tmp_path, TableGrid({**nodes, 101: silent}))


def test_a_copy_that_changes_on_its_way_is_refused_by_the_client(
    config: MpuConfig, tmp_path: Path
) -> None:
    nodes = nodes_of(config)

    def tampered(message: Message) -> Message | None:
        if message.metadata.message_type == "train.copy":
            record = message.content.array_records["arrays"]
            name = sorted(record)[0]
            array = record[name].numpy().copy()
            array.flat[0] += 1
            message.content["arrays"] = ArrayRecord({**record, name: type(record[name])(array)})
        return nodes[101](message)

    with pytest.raises(RunError, match="it was changed on its way"):
        run(config, tmp_path, TableGrid({**nodes, 101: tampered}))


def test_flower_s_own_loop_gives_the_same_result(config: MpuConfig, tmp_path: Path) -> None:
    """One Flower round a copy: rounds times copies of them."""
    strategy, grid = strategy_of(config, tmp_path / "a"), TableGrid(nodes_of(config))
    result = strategy.start(
        grid, initial_arrays=ArrayRecord(), num_rounds=4, train_config=ConfigRecord()
    )
    expected = run(config, tmp_path / "b")
    arrays = {name: torch.from_numpy(one.numpy().copy()) for name, one in result.arrays.items()}
    assert same(expected, arrays)


def test_killed_between_copies_the_strategy_goes_on(config: MpuConfig, tmp_path: Path) -> None:
    expected = run(config, tmp_path / "whole")
    nodes, asked = nodes_of(config), []

    def dying(message: Message) -> Message | None:
        if message.metadata.message_type == "train.copy":
            asked.append(message)
            if len(asked) == 4:
                raise KeyboardInterrupt
        return nodes[100](message)

    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "cut", TableGrid({**nodes, 100: dying}))
    again = TableGrid(nodes)
    assert same(run(config, tmp_path / "cut", again), expected)
    assert len([m for m in again.sent if m.metadata.message_type == "train.copy"]) == 2


def test_the_arm_is_one_of_two_rounds_of_two_copies() -> None:
    assert (ARM.rounds, ARM.copies_a_round) == (2, 2)


@pytest.mark.parametrize("arm", [replace(ARM, rounds=1), LORA_ARM], ids=["dense", "adapter"])
def test_a_poisoned_update_is_reported_refused_or_clipped(arm: ArmSettings, tmp_path: Path) -> None:
    def with_policy(policy: str) -> tuple[MpuStrategy, list[dict[str, Any]]]:
        settings = {"allow_partial": True, "outliers": policy}
        config = copies_config(tmp_path, "f-2", "f-3", "poison-1", **settings)
        config = replace(config, arms={"mpu": arm})
        strategy = strategy_of(config, tmp_path / policy)
        strategy.run(TableGrid(nodes_of(config)))
        events = read_events(tmp_path / policy / "events.jsonl")
        return strategy, [one for one in events if one["event"] == "outlier"]

    moved: dict[str, float] = {}
    for policy in ("report", "clip", "refuse"):
        strategy, outliers = with_policy(policy)
        assert {one["client_id"] for one in outliers} == {"poison-1"}
        assert {one["copy"] for one in outliers} >= {1}
        assert "client 'poison-1' (brewing): the norm of its update" in strategy.warnings[0]
        base = Bench(copies_config(tmp_path), tmp_path)._weights
        after = strategy.rounds.weights
        moved[policy] = math.hypot(*((after[n] - base[n]).norm().item() for n in base))
    assert "poison-1" not in strategy.rounds.clients
    assert moved["refuse"] < moved["clip"] < moved["report"] / 5


def test_an_honest_copy_is_not_accused(tmp_path: Path) -> None:
    config = copies_config(tmp_path, "f-2", "f-3")
    strategy = strategy_of(config, tmp_path / "run")
    strategy.run(TableGrid(nodes_of(config)))
    assert strategy.warnings == ()


def test_an_adapter_with_a_pattern_in_bad_faith_is_refused(tmp_path: Path) -> None:
    config = replace(copies_config(tmp_path, "regex-1"), arms={"mpu": LORA_ARM})
    with pytest.raises(RunError, match=r"client 'regex-1' .*rank_pattern"):
        run(config, tmp_path / "run")

"""Who may be missing: the policies together, and that nothing is written where they fail."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from fedunlearn.errors import RunError
from fedunlearn.rounds import ClientFailure, Hello, RoundRules, check_policy
from tests.strategies.federation import Node, TableGrid, federation, flower_task
from tests.strategies.test_firm import nodes_of, strategy_of


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    with flower_task():
        yield


def silent(node: Node) -> Node:
    """A node that says who it is and then never delivers."""
    return lambda message: None if message.metadata.message_type == "train" else node(message)


def run(directory: Path, *lost: int, **settings: Any) -> tuple[str, ...]:
    config = federation(directory, "f-3", allow_partial=True, **settings)
    nodes = nodes_of(config)
    for node in lost:
        nodes[node] = silent(nodes[node])
    strategy = strategy_of(config, directory / "run")
    strategy.run(TableGrid(nodes))
    return strategy.warnings


F1, F2, R1, F3 = 100, 101, 102, 103  # f-1 and f-3 are of brewing, f-2 of signals


def test_a_domain_with_enough_clients_left_passes(tmp_path: Path) -> None:
    warnings = run(tmp_path, F1, min_forget_per_domain=1)
    assert "the data of 'f-1' in 'brewing' is not unlearned" in warnings[0]


def test_a_domain_with_too_few_fails_although_partial_runs_are_allowed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="forget domain 'signals' has 0 clients") as caught:
        run(tmp_path, F2, min_forget_per_domain=1)
    assert "brewing" not in str(caught.value)
    assert not (tmp_path / "run" / "summaries").exists()


def test_a_domain_that_never_had_enough_fails_before_anybody_trains(tmp_path: Path) -> None:
    config = federation(tmp_path, min_forget_per_domain=2)
    grid = TableGrid(nodes_of(config))
    with pytest.raises(RunError, match="'brewing' has 1 clients"):
        strategy_of(config, tmp_path / "run").run(grid)
    assert {message.metadata.message_type for message in grid.sent} == {"query"}


def test_a_retain_client_may_be_lost_or_not(tmp_path: Path) -> None:
    warnings = run(tmp_path / "a", R1)
    assert "the data of 'r-1' in 'geography' is not protected" in warnings[0]
    with pytest.raises(RunError, match=r"client 'r-1' \(geography\).*require_all_retain"):
        run(tmp_path / "b", R1, require_all_retain=True)
    assert "'f-1'" in run(tmp_path / "c", F1, require_all_retain=True)[0]


def test_a_domain_all_of_whose_clients_are_absent_counts() -> None:
    rules = RoundRules(1.0, 1.0, 1.0, min_forget_per_domain=1)
    there = [Hello(1, "a", "forget", "x", 1, "m", "0")]
    check_policy(there, [], rules)
    with pytest.raises(RunError, match="forget domain 'y' has 0 clients"):
        check_policy(there, [ClientFailure("b", "forget", "y", "late")], rules)


def test_a_slow_client_is_missing_after_the_deadline_and_its_late_upload_is_not_used(
    tmp_path: Path,
) -> None:
    config = federation(tmp_path, allow_partial=True)
    nodes = nodes_of(config)
    late: list[Message] = []

    def slow(message: Message) -> Message | None:
        if message.metadata.message_type == "train":
            late.append(message)
            return None
        return nodes_of(config)[F2](message)

    strategy = strategy_of(config, tmp_path / "run")
    strategy.run(TableGrid({**nodes, F2: slow}))
    assert len(late) == 1
    assert [failure.client_id for failure in strategy.outcome.missing] == ["f-2"]  # type: ignore[union-attr]
    assert sorted(path.name for path in (tmp_path / "run" / "summaries").iterdir()) == [
        "f-1",
        "r-1",
    ]


def test_an_upload_that_would_be_too_large_is_refused_before_training(tmp_path: Path) -> None:
    config = federation(tmp_path)
    strategy = strategy_of(config, tmp_path / "run")
    strategy.rules = RoundRules(2.0, 2.0, 2.0, max_upload_bytes=1000)
    grid = TableGrid(nodes_of(config))
    with pytest.raises(RunError, match=r"'f-1' \(brewing\): it would send [\d,]+ bytes.*target_"):
        strategy.run(grid)
    assert {message.metadata.message_type for message in grid.sent} == {"query"}

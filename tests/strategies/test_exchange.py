"""Bounded waiting, and telling a client that died from its neighbours."""

from collections.abc import Iterator

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fedunlearn.rounds import Addressee
from strategies.exchange import (
    BYSTANDER,
    DIED,
    Answer,
    Patience,
    Question,
    ask,
    from_replies,
    plain_reason,
    wait_for_nodes,
)
from tests.strategies.federation import Clock, Node, TableGrid, dead_actor, flower_task

QUESTION = Question("query", lambda _, seconds: RecordDict({"q": ConfigRecord({"s": seconds})}))


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    with flower_task():
        yield


def fine(message: Message) -> Message:
    return Message(RecordDict({"ok": ConfigRecord({})}), reply_to=message)


def silent(message: Message) -> None:
    return None


def put(grid: TableGrid, *, limit_s: float = 10.0) -> tuple[dict[int, Answer], Clock]:
    clock = Clock()
    patience = Patience(clock=clock, sleep=clock.sleep)
    who = [Addressee(node) for node in grid.nodes]
    answers = ask(grid, who, QUESTION, limit_s=limit_s, patience=patience)
    return {answer.sender.node_id: answer for answer in answers}, clock


def test_silence_ends_at_the_limit_and_not_before() -> None:
    answers, clock = put(TableGrid({1: fine, 2: silent}))
    assert list(answers) == [1]
    assert clock.now == pytest.approx(10.0, abs=0.2)


def test_nobody_waits_once_all_have_answered() -> None:
    answers, clock = put(TableGrid({1: fine, 2: fine}))
    assert sorted(answers) == [1, 2]
    assert clock.now == 0.0


def test_waiting_stops_when_nobody_wants_the_answer() -> None:
    clock = Clock()
    patience = Patience(clock=clock, sleep=clock.sleep, stopped=lambda: clock.now > 1)
    assert (
        list(ask(TableGrid({1: silent}), [Addressee(1)], QUESTION, limit_s=99, patience=patience))
        == []
    )
    assert clock.now < 2


def test_each_message_carries_its_limit_and_outlives_it() -> None:
    grid = TableGrid({1: fine})
    put(grid, limit_s=10.0)
    assert grid.sent[0].content.config_records["q"]["s"] == 10.0
    assert grid.sent[0].metadata.ttl > 10.0


def test_an_error_keeps_its_last_line() -> None:
    def broken(message: Message) -> Message:
        return Message(
            Error(2, "\x1b[36mray::run\x1b[39m\n  stack\nValueError: boom\n"), reply_to=message
        )

    answers, _ = put(TableGrid({1: broken}))
    assert answers[1].error == "ValueError: boom (Flower error code 2)"
    assert plain_reason(0, "") == "no reason given (Flower error code 0)"


def once_then(first: Node, later: Node) -> Node:
    calls: list[Message] = []

    def node(message: Message) -> Message | None:
        calls.append(message)
        return (first if len(calls) == 1 else later)(message)

    return node


def test_clients_given_a_dead_worker_are_asked_again_and_only_the_dead_one_fails() -> None:
    nodes: dict[int, Node] = {
        1: once_then(dead_actor("aa", created_at=3.0), fine),
        2: dead_actor("aa", created_at=1.0),
        3: fine,
        4: once_then(dead_actor("aa", created_at=2.0), fine),
    }
    grid = TableGrid(nodes)
    answers, _ = put(grid)
    assert answers[2] == Answer(Addressee(2), None, DIED)
    assert all(answers[node].content is not None for node in (1, 3, 4))
    assert len(grid.sent) == 6


def test_a_worker_that_stays_dead_is_said_to_have_been_somebody_elses() -> None:
    grid = TableGrid({1: dead_actor("aa", created_at=1.0), 2: dead_actor("aa", created_at=2.0)})
    answers, _ = put(grid)
    assert answers[1].error == DIED
    assert answers[2].error == BYSTANDER
    assert len(grid.sent) == 3


def test_two_workers_that_die_have_two_culprits() -> None:
    answers, _ = put(TableGrid({1: dead_actor("aa"), 2: dead_actor("bb")}))
    assert [answers[node].error for node in (1, 2)] == [DIED, DIED]


def test_a_second_client_that_dies_on_being_asked_again_is_a_culprit_itself() -> None:
    nodes: dict[int, Node] = {
        1: dead_actor("aa", created_at=1.0),
        2: once_then(dead_actor("aa", created_at=2.0), dead_actor("bb", pid=9)),
    }
    answers, _ = put(TableGrid(nodes))
    assert answers[2].error == DIED


@pytest.mark.parametrize(
    ("detail", "error"),
    [
        ("RpcError: RPC error: Socket closed rpc_code: 14", DIED),
        ("IOError: The actor is restarting", ""),
    ],
)
def test_a_restarting_worker_is_not_the_clients_fault(detail: str, error: str) -> None:
    def unavailable(message: Message) -> Message:
        reason = f"<class 'ray.exceptions.ActorUnavailableError'>:<'The actor aa ... {detail}'>"
        return Message(Error(0, reason), reply_to=message)

    answers, _ = put(TableGrid({1: once_then(unavailable, fine)}))
    assert answers[1].error == error


def test_replies_received_by_others_are_sorted_without_asking_again() -> None:
    grid = TableGrid(
        {1: dead_actor("aa", created_at=1.0), 2: fine, 3: dead_actor("aa", created_at=2.0)}
    )
    replies = grid.send_and_receive([QUESTION.to(Addressee(node), 5.0) for node in (1, 2, 3)])
    errors = {answer.sender.node_id: answer.error for answer in from_replies(replies)}
    assert errors == {1: DIED, 2: "", 3: BYSTANDER}


def test_nodes_are_waited_for_until_there_are_enough() -> None:
    clock = Clock()
    grid = TableGrid({})

    def arrive(seconds: float) -> None:
        clock.sleep(seconds)
        grid.nodes[9 - len(grid.nodes)] = fine

    patience = Patience(clock=clock, sleep=arrive)
    assert wait_for_nodes(grid, 2, limit_s=5.0, patience=patience) == [8, 9]
    patience = Patience(clock=clock, sleep=clock.sleep)
    assert wait_for_nodes(grid, 3, limit_s=5.0, patience=patience) == [8, 9]
    before = clock.now
    assert wait_for_nodes(grid, None, limit_s=5.0, patience=patience) == [8, 9]
    assert clock.now - before == pytest.approx(5.0, abs=0.2)

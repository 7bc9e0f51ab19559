"""Evaluation on the clients' own data: aggregates come back, and nothing else."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedunlearn.aggregation import merge_summaries
from fedunlearn.client_app import make_client_app
from fedunlearn.config import RunConfig
from fedunlearn.config.checks import cross_check
from fedunlearn.data.records import write_jsonl
from fedunlearn.evaluation import (
    EvaluationSet,
    EvaluationSettings,
    evaluate,
    read_bank,
)
from fedunlearn.evaluation.own_data import decode_own, read_own
from fedunlearn.events import read_events
from fedunlearn.models.loading import load_base
from fedunlearn.models.patching import applied
from fedunlearn.pipeline import finish
from fedunlearn.report import read_report
from fedunlearn.rounds import ClientFailure
from fedunlearn.server_app import federate
from fedunlearn.simulation import steps_of
from fedunlearn.summary import open_summaries
from strategies import records
from tests.strategies.federation import (
    Node,
    TableGrid,
    app_nodes,
    federation,
    flower_task,
    job,
)
from tests.world import questions


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    with flower_task():
        yield


def evaluating(folder: Path, *ids: str) -> RunConfig:
    """Twelve questions for each client but f-2, which has four."""
    config = federation(folder, *ids, evaluate="firm")
    rows: list[dict[str, object]] = [
        {"question": q.question, "answer": q.answer} for q in questions(12)
    ]
    write_jsonl(folder / "many.jsonl", rows)
    clients = tuple(
        one if one.id == "f-2" else replace(one, data=str(folder / "many.jsonl"))
        for one in config.clients
    )
    chosen = replace(config.evaluation, max_new_tokens=4)
    return replace(config, clients=clients, evaluation=chosen)


def watched(config: RunConfig, replies: list[Message]) -> dict[int, Node]:
    app = make_client_app(lambda _: config, run_job=job)

    def listening(node: Node) -> Node:
        def answer(message: Message) -> Message | None:
            reply = node(message)
            if reply is not None and message.metadata.message_type == "evaluate":
                replies.append(reply)
            return reply

        return answer

    nodes = app_nodes(app, range(len(config.clients)))
    return {number: listening(node) for number, node in nodes.items()}


@pytest.fixture(scope="module")
def done(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[RunConfig, Path, list[Message], TableGrid]:
    folder = tmp_path_factory.mktemp("evaluating")
    config, replies = evaluating(folder), []
    (folder / "run").mkdir()
    with flower_task():
        grid = TableGrid(watched(config, replies))
        assert federate(grid, config, folder / "run") == ()
    return config, folder / "run", replies, grid


Done = tuple[RunConfig, Path, list[Message], TableGrid]


def test_the_numbers_are_those_of_the_model_measured_here(done: Done) -> None:
    config, run_dir, _, _ = done
    base = load_base(config.model)
    delta = merge_summaries(open_summaries(run_dir / "summaries"), config.merges["firm"]).delta
    one = EvaluationSet(name="mine", kind="utility", data=config.clients[0].data)
    chosen = EvaluationSettings(sets=(one,), max_new_tokens=4)
    scores = {"base": evaluate(base, read_bank(chosen), chosen)["mine"]}
    with applied(base.model, delta):
        scores["merged"] = evaluate(base, read_bank(chosen), chosen)["mine"]
    found = {one.client_id: one for one in read_own(run_dir)}
    for client in ("f-1", "r-1"):
        own = found[client].scores
        assert own is not None
        for part in ("base", "merged"):
            for metric in ("rouge_l_recall", "answer_probability"):
                values = np.array(getattr(scores[part], metric))
                got = getattr(getattr(own, part), metric)
                error = values.std(ddof=1) / np.sqrt(12)
                assert got.n == 12
                assert got.mean == pytest.approx(values.mean(), abs=5.1e-4)
                assert got.standard_error == pytest.approx(error, abs=5.1e-4)
    assert found["f-1"].bytes_sent == sum(4 * one.numel() for one in delta.values())


def test_a_reply_holds_aggregates_of_three_decimals_and_nothing_else(done: Done) -> None:
    _, _, replies, _ = done
    texts = [text for q in questions(12) for text in (q.question, q.answer, *q.answer.split())]
    answered = [one for one in replies if records.read_failure(one.content) is None]
    assert len(answered) == 2
    for reply in answered:
        assert list(reply.content) == ["own"]
        record = reply.content.config_records["own"]
        assert list(record) == ["evaluation"]
        told = json.loads(str(record["evaluation"]))
        assert not any(text in str(record["evaluation"]) for text in texts if len(text) > 4)
        leaves = [*_leaves(told)]
        assert len(leaves) == 13
        assert {type(one) for one in leaves} == {str, int, float}
        for one in leaves:
            assert not isinstance(one, float) or round(one, 3) == one


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _leaves(one)
    else:
        assert not isinstance(value, list)
        yield value


def test_a_small_group_says_nothing_and_the_run_goes_on(done: Done) -> None:
    _, run_dir, replies, grid = done
    (refused,) = [one for one in read_own(run_dir) if one.scores is None]
    assert refused.client_id == "f-2"
    assert refused.reason == (
        "the client has fewer than 10 records and says nothing of so small a group"
    )
    assert len(replies) == 3
    kinds = [message.metadata.message_type for message in grid.sent]
    assert kinds.count("evaluate") == 3
    events = [one for one in read_events(run_dir / "events.jsonl") if one["event"] == "evaluation"]
    assert {one["client_id"] for one in events} == {"f-1", "f-2", "r-1"}


def test_the_report_has_a_row_for_each_client(done: Done) -> None:
    config, run_dir, _, _ = done
    report = finish(run_dir, config)
    assert report.own_data == read_own(run_dir)
    assert read_report(run_dir).own_data == report.own_data
    text = (run_dir / "report.md").read_text(encoding="utf-8")
    assert "On the clients' own data" in text
    section = text[text.index("On the clients' own data") :]
    assert "so small a group" in section
    assert "| f-1 | forget | brewing |" in section


def honest(done: Done) -> str:
    replies = [one for one in done[2] if records.read_failure(one.content) is None]
    return records.read_evaluation(replies[0].content)


def test_a_reply_with_anything_more_is_refused(done: Done) -> None:
    told = json.loads(honest(done))
    assert decode_own(json.dumps(told), merge="firm", most=12).merge == "firm"
    score = told["base"]["answer_probability"]
    bad = {
        "Unexpected keyword": {**told, "texts": ["a secret"]},
        "n must be >= 10": {**told, "base": {"answer_probability": {**score, "n": 9}}},
        "3 decimals": {**told, "base": {"answer_probability": {**score, "mean": 0.12345}}},
        "is of merge 'sum'": {**told, "merge": "sum"},
    }
    for expected, content in bad.items():
        with pytest.raises(Exception, match=expected):
            decode_own(json.dumps(content), merge="firm", most=12)
    with pytest.raises(Exception, match="more than its 11 records"):
        decode_own(json.dumps(told), merge="firm", most=11)
    more = RecordDict({"own": ConfigRecord({"evaluation": honest(done), "texts": "a secret"})})
    with pytest.raises(Exception, match="'own' alone"):
        records.read_evaluation(more)


def test_a_client_that_fails_or_is_silent_is_named_and_fails_nobody_else(tmp_path: Path) -> None:
    config = evaluating(tmp_path)
    nodes = watched(config, [])
    (tmp_path / "run").mkdir()

    def failing(message: Message) -> Message | None:
        if message.metadata.message_type != "evaluate":
            return nodes[100](message)
        fault = ClientFailure("f-1", "forget", "brewing", "out of memory")
        return Message(records.failure_content(fault), reply_to=message)

    def silent(message: Message) -> Message | None:
        return None if message.metadata.message_type == "evaluate" else nodes[102](message)

    config = replace(config, federation=replace(config.federation, deadline_s=8.0))
    grid = TableGrid({**nodes, 100: failing, 102: silent})
    federate(grid, config, tmp_path / "run")
    found = {one.client_id: one.reason or "" for one in read_own(tmp_path / "run")}
    assert found["f-1"] == "out of memory"
    assert "did not come before the deadline" in found["r-1"]


def test_a_fault_of_the_data_quotes_no_record_to_the_server(tmp_path: Path) -> None:
    config = evaluating(tmp_path)
    config = replace(config, evaluation=replace(config.evaluation, max_length=2))
    replies: list[Message] = []
    (tmp_path / "run").mkdir()
    federate(TableGrid(watched(config, replies)), config, tmp_path / "run")
    reasons = {one.client_id: one.reason for one in read_own(tmp_path / "run")}
    assert reasons["f-1"] == "its data cannot be measured; the log of its node says why"
    texts = [text for q in questions(12) for text in (q.question, q.answer)]
    assert not any(text[:20] in str(reply.content) for reply in replies for text in texts)


def test_nobody_is_asked_where_the_config_does_not_say_so(tmp_path: Path) -> None:
    config = evaluating(tmp_path)
    quiet = replace(config, federation=replace(config.federation, evaluate=None))
    (tmp_path / "run").mkdir()
    grid = TableGrid(watched(quiet, []))
    federate(grid, quiet, tmp_path / "run")
    assert {message.metadata.message_type for message in grid.sent} == {"query", "train"}
    assert read_own(tmp_path / "run") == ()
    assert (steps_of(quiet), steps_of(config)) == (3, 6)
    app = app_nodes(make_client_app(lambda _: quiet, run_job=job), range(1))[100]
    task = records.evaluation_task("f-1", records.array_record({}), "firm", 9.0)
    reply = app(Message(task, dst_node_id=100, message_type="evaluate"))
    assert reply is not None
    failure = records.read_failure(reply.content)
    assert failure is not None
    assert "does not ask for it" in failure.reason


def test_a_merge_that_is_not_there_and_mpu_are_config_faults() -> None:
    tree = {"merges": {"firm": {"method": "firm"}}, "federation": {"evaluate": "frim"}}
    assert any(
        "federation.evaluate: 'frim' is not in merges; did you mean 'firm'" in fault
        for fault in cross_check(tree, local=False)
    )
    arms = {"arms": {"a": {}}, "federation": {"evaluate": "firm"}}
    assert any("must not have the model" in fault for fault in cross_check(arms, local=False))

"""Uploads in bad faith: refused before they are decoded, or named by the outlier test."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedunlearn.errors import RunError, SummaryError
from fedunlearn.events import read_events
from fedunlearn.models.plain_lora import read_lora
from fedunlearn.summary import (
    dense_form,
    factors_form,
    from_wire,
    norms_of,
    open_summaries,
    summary_form,
    to_wire,
)
from strategies import records
from tests.pico import DOWN_0, pico_summary
from tests.strategies.federation import TableGrid, federation, flower_task
from tests.strategies.test_firm import nodes_of, strategy_of

LORA = read_lora({"peft_type": "LORA", "r": 4, "lora_alpha": 8})
WEIGHTS = {name: tuple(one.shape) for name, one in pico_summary().fisher.items()}
FORM = summary_form(WEIGHTS, LORA)
SOURCES = [
    path
    for folder in ("fedunlearn", "strategies", "clients")
    for path in sorted((Path(__file__).parents[2] / folder).rglob("*.py"))
]


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    with flower_task():
        yield


def test_nothing_is_unpickled_anywhere() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        for word in ("pickle.load", "allow_pickle=True", "np.load(", "numpy.load(", "joblib"):
            assert word not in text, f"{path}: {word}"
        assert text.count("torch.load(") == text.count("weights_only=True"), path


def pickled() -> Array:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return Array("object", (1,), "numpy.ndarray", buffer.getvalue())


def content_with(name: str, array: Array) -> RecordDict:
    arrays, meta = to_wire(pico_summary())
    content = records.summary_content(arrays, meta)
    content["arrays"] = ArrayRecord({**content.array_records["arrays"], name: array})
    return content


def test_an_honest_summary_has_the_form() -> None:
    arrays, meta = to_wire(pico_summary())
    decoded, _ = records.read_summary(records.summary_content(arrays, meta), FORM)
    assert norms_of(from_wire(decoded, meta)) == norms_of(pico_summary())


HUGE = Array("float32", (10**7, 10**7), "numpy.ndarray", b"")


@pytest.mark.parametrize(
    ("name", "array", "fault"),
    [
        ("fisher/x.weight", Array(np.zeros(1, np.uint16)), "'fisher/x.weight' was not asked for"),
        ("../../x", Array(np.zeros(1, np.uint16)), "'../../x' was not asked for"),
        ("x" * 10**6, Array(np.zeros(1, np.uint16)), "was not asked for"),
        (f"fisher/{DOWN_0}", HUGE, r"has shape \(10000000, 10000000\), expected"),
        (f"entries/{DOWN_0}", HUGE, "expected one dimension of at most"),
        (f"fisher/{DOWN_0}", pickled(), r"has shape \(1,\), expected"),
    ],
)
def test_what_was_not_asked_for_is_refused_before_it_is_decoded(
    name: str, array: Array, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(data: bytes) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(records, "read_npy", never)
    with pytest.raises(SummaryError, match=fault) as caught:
        records.read_summary(content_with(name, array), FORM)
    assert len(str(caught.value)) < 500


def test_a_pickled_array_with_the_right_shape_is_refused() -> None:
    shape = WEIGHTS[DOWN_0]
    lying = Array("uint16", shape, "numpy.ndarray", pickled().data)
    with pytest.raises(SummaryError, match="does not decode: its header"):
        records.read_summary(content_with(f"fisher/{DOWN_0}", lying), FORM)


def test_a_header_that_announces_more_than_is_there_reserves_nothing() -> None:
    line = b"{'descr': '<u2', 'fortran_order': False, 'shape': (1000000000000,), }\n"
    data = b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line
    lying = Array("uint16", WEIGHTS[DOWN_0], "numpy.ndarray", data)
    with pytest.raises(SummaryError, match="announces 2000000000000 bytes, 0 are there"):
        records.read_summary(content_with(f"fisher/{DOWN_0}", lying), FORM)


def test_forms_of_updates() -> None:
    dense = dense_form({"w": (2, 3)})
    dense.admit("w", (2, 3))
    for name, shape in (("w", (3, 2)), ("v", (2, 3))):
        with pytest.raises(SummaryError):
            dense.admit(name, shape)
    factors = factors_form({"m.weight": (2, 3), "norm.weight": (2,)}, LORA)
    factors.admit("base_model.model.m.lora_A.weight", (4, 3))
    with pytest.raises(SummaryError, match="expected"):
        factors.admit("base_model.model.m.lora_A.weight", (5, 3))


def test_a_pattern_in_bad_faith_is_compared_and_never_matched() -> None:
    arrays, meta = to_wire(pico_summary())
    document = json.loads(meta)
    document["adapter_config"]["rank_pattern"] = {"((a+)+.)+#": 4}
    asked = {"r": 4, "lora_alpha": 8, "rank_pattern": {}, "alpha_pattern": {}, "use_rslora": False}
    with pytest.raises(SummaryError, match=r"client 'bio-0': adapter has rank_pattern .* asked"):
        from_wire(arrays, json.dumps(document), asked=asked)
    assert from_wire(arrays, meta, asked=asked).meta.client_id == "bio-0"


def test_a_client_with_another_adapter_than_asked_is_refused_by_name(tmp_path: Path) -> None:
    config = federation(tmp_path, "regex-1")
    with pytest.raises(RunError, match=r"client 'regex-1' \(brewing\): .*rank_pattern"):
        strategy_of(config, tmp_path / "run").run(TableGrid(nodes_of(config)))


@pytest.mark.parametrize(("sort", "part"), [("poison", "task vector"), ("inflated", "Fisher")])
def test_poison_is_reported_refused_or_clipped_as_the_run_says(
    sort: str, part: str, tmp_path: Path
) -> None:
    def run(policy: str) -> tuple[Path, tuple[str, ...]]:
        config = federation(tmp_path, f"{sort}-1", outliers=policy, allow_partial=True)
        strategy = strategy_of(config, tmp_path / policy)
        strategy.run(TableGrid(nodes_of(config)))
        return tmp_path / policy, strategy.warnings

    reported, warnings = run("report")
    assert f"forget client '{sort}-1' (brewing): the norm of its {part} is" in warnings[0]
    assert warnings[0].endswith("it is used as it came")
    events = [one for one in read_events(reported / "events.jsonl") if one["event"] == "outlier"]
    assert {(one["client_id"], one["part"]) for one in events} == {(f"{sort}-1", part)}
    refused, warnings = run("refuse")
    assert f"the data of '{sort}-1' in 'brewing' is not unlearned" in warnings[0]
    assert "r-1" in {one.meta.client_id for one in open_summaries(refused / "summaries")}
    assert not (refused / "summaries" / f"{sort}-1").exists()
    clipped, _ = run("clip")
    before, after = (
        {one.meta.client_id: norms_of(one) for one in open_summaries(path / "summaries")}
        for path in (reported, clipped)
    )
    name = next(iter(after["f-1"].parts[part]))
    assert after[f"{sort}-1"].parts[part][name] < before[f"{sort}-1"].parts[part][name] / 2
    assert after["f-1"] == before["f-1"]


def test_an_honest_round_is_not_accused(tmp_path: Path) -> None:
    config = federation(tmp_path, "f-3")
    strategy = strategy_of(config, tmp_path / "run")
    strategy.run(TableGrid(nodes_of(config)))
    assert strategy.warnings == ()


def test_an_upload_of_another_run_or_task_is_refused(tmp_path: Path) -> None:
    """A node that answers what it was asked by another run is named, and not believed."""
    config = federation(tmp_path)
    other = replace(config, seed=9)
    theirs, ours = nodes_of(other), nodes_of(config)

    def replaying(message: Message) -> Message | None:
        if message.metadata.message_type == "query":
            return ours[101](message)
        content = message.content
        assert content is not None
        stale = records.task_content(
            records.read_client_id(content),
            records.read_task(content),
            60.0,
            "the salt of another run",
        )
        content["limit"], content["task"] = stale["limit"], stale["task"]
        return theirs[101](message)

    with pytest.raises(RunError, match=r"'f-2' \(signals\): its summary is of another run or task"):
        strategy_of(config, tmp_path / "run", salt="ours").run(TableGrid({**ours, 101: replaying}))


def test_a_second_upload_is_ignored_and_named(tmp_path: Path) -> None:
    config = federation(tmp_path)
    strategy = strategy_of(config, tmp_path / "run")
    grid = TableGrid(nodes_of(config))
    messages = list(strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid))
    replies = list(grid.send_and_receive(messages))
    strategy.aggregate_train(1, [*replies, replies[0]])
    assert strategy.outcome is not None
    assert strategy.outcome.received == ("f-1", "f-2", "r-1")
    events = read_events(tmp_path / "run" / "events.jsonl")
    (ignored,) = [one for one in events if one["event"] == "upload_ignored"]
    assert (ignored["client_id"], "second summary" in ignored["reason"]) == ("f-1", True)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_but_a_summary_error_comes_out_of_the_decoder(data: st.DataObject) -> None:
    """Real summaries with any key of their JSON, or any array, replaced by something else."""
    summary = pico_summary()
    if data.draw(st.booleans()):
        summary.fisher[DOWN_0][1:] = 0.0  # type: ignore[index]  # one that travels as a bitmap
    arrays: dict[str, Any]
    arrays, meta = to_wire(summary)
    document = json.loads(meta)
    part = data.draw(st.sampled_from([None, *document]))
    if part is not None and document[part]:
        key = data.draw(st.sampled_from([None, *sorted(document[part])]))
        if key is None:
            document[part] = data.draw(JUNK)
        else:
            document[part][key] = data.draw(JUNK)
    name = data.draw(st.sampled_from(sorted(arrays)))
    if data.draw(st.booleans()):
        raw = bytearray(Array(arrays[name]).data)
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        shape = data.draw(st.sampled_from([arrays[name].shape, (1,), (10**9, 10**9), ()]))
        arrays[name] = Array("float32", shape, "numpy.ndarray", bytes(raw))
    else:
        arrays[name] = Array(arrays[name])
    content = RecordDict(
        {
            "arrays": ArrayRecord(
                {key: one if isinstance(one, Array) else Array(one) for key, one in arrays.items()}
            ),
            "summary": ConfigRecord({"meta": json.dumps(document)}),
        }
    )
    try:
        decoded = from_wire(*records.read_summary(content, FORM))
        assert all(bool(torch.isfinite(one).all()) for one in decoded.adapter.values())
    except SummaryError:
        pass

"""What travels, and what is refused on arrival."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fedunlearn.errors import SummaryError
from fedunlearn.rounds import ClientFailure, Hello
from strategies import records

PROPERTIES: dict[str, str | int] = {
    "client_id": "a",
    "role": "forget",
    "domain": "bio",
    "num_examples": 3,
    "base_model": "pico",
    "base_model_sha256": "0" * 64,
}


def test_a_handshake_arrives_as_sent() -> None:
    failure = ClientFailure("b", "retain", "law", "no data")
    other = {**PROPERTIES, "client_id": "c", "role": "retain"}
    content = records.hellos_content([PROPERTIES, failure, other])
    assert records.read_hellos(7, content) == [
        Hello(node_id=7, **PROPERTIES),  # type: ignore[arg-type]
        failure,
        Hello(node_id=7, **other),  # type: ignore[arg-type]
    ]


def test_a_handshake_without_a_client_says_what_it_holds_instead() -> None:
    with pytest.raises(SummaryError, match=r"node 7: no client in \['limit'\]"):
        records.read_hellos(7, records.query_content(1.0))


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_an_incomplete_handshake_names_the_field(name: str) -> None:
    partial = {key: value for key, value in PROPERTIES.items() if key != name}
    with pytest.raises(SummaryError, match=f"node 7: field '{name}' is None"):
        records.read_hellos(7, records.hellos_content([partial]))


def test_a_task_arrives_with_its_limit() -> None:
    content = records.task_content("a", '{"seed": 1}', 30)
    assert records.read_task(content) == '{"seed": 1}'
    assert records.read_client_id(content) == "a"
    with pytest.raises(SummaryError, match="no client_id"):
        records.read_client_id(records.query_content(1.0))
    assert records.read_limit(content) == 30.0
    with pytest.raises(SummaryError, match="no instructions"):
        records.read_task(records.query_content(1.0))
    with pytest.raises(SummaryError, match="no time limit"):
        records.read_limit(RecordDict())


def test_arrays_arrive_bit_for_bit_with_dtype_and_name() -> None:
    sent: dict[str, NDArray[np.generic]] = {
        "fisher/w": np.array([[0x2EDB, 0x47C3], [0, 0x7F80]], dtype=np.uint16),
        "adapter/a": np.array([[1e-10], [1e5]], dtype=np.float32).T,
        "adapter/empty": np.zeros((0, 2), dtype=np.float16),
    }
    arrays, meta = records.read_summary(records.summary_content(sent, "{}"))
    assert meta == "{}"
    assert sorted(arrays) == sorted(sent)
    for name, array in sent.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()


def test_an_array_that_does_not_decode_is_named() -> None:
    content = records.summary_content({"x": np.zeros(3)}, "{}")
    hostile = Array("float64", (3,), "numpy.ndarray", b"not an array")
    content["arrays"] = ArrayRecord({"x": hostile})
    with pytest.raises(SummaryError, match="tensor 'x' does not decode"):
        records.read_summary(content)
    content["arrays"] = ArrayRecord({"x": Array("float64", (3,), "pickle", b"")})
    with pytest.raises(SummaryError, match="tensor 'x' does not decode"):
        records.read_summary(content)


def test_a_reply_of_another_kind_is_refused() -> None:
    with pytest.raises(SummaryError, match=r"holds \['hello.0'\]"):
        records.read_summary(records.hellos_content([PROPERTIES]))


def test_a_failure_arrives_with_its_name() -> None:
    failure = ClientFailure("a", "forget", "bio", "boom")
    assert records.read_failure(records.failure_content(failure)) == failure
    assert records.read_failure(RecordDict({"hello": ConfigRecord()})) is None

"""What travels between server and clients, as Flower records; the only place that knows keys.

======== ============ ============================================================================
message  record       content
======== ============ ============================================================================
query    ``limit``    ConfigRecord: ``seconds``, the time the client has
 reply   ``hello``    ConfigRecord: the fields of :class:`fedunlearn.rounds.Hello`, less the node
train    ``limit``    as above
         ``task``     ConfigRecord: ``instructions`` (JSON)
 reply   ``arrays``   ArrayRecord: named arrays of the summary, bfloat16 as uint16 bits
         ``summary``  ConfigRecord: ``meta`` (JSON)
copy     ``limit``    as above, of a ``train.copy``
         ``task``     ConfigRecord: ``instructions`` (JSON), ``dtypes`` (JSON)
         ``arrays``   ArrayRecord: the weights of a published copy, bfloat16 as uint16 bits
 reply   ``arrays``   ArrayRecord: the displacement, or the factors of an adapter
         ``update``   ConfigRecord: ``meta`` (JSON), ``dtypes`` (JSON)
evaluate ``limit``    as above
         ``task``     ConfigRecord: ``merge``, the update's name
         ``arrays``   ArrayRecord: the update, dense float32, by base parameter name
 reply   ``own``      ConfigRecord: ``evaluation`` (JSON), aggregates only
either   ``failure``  ConfigRecord: ``client_id``, ``role``, ``domain``, ``reason``
======== ============ ============================================================================
"""

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fedunlearn.errors import SummaryError
from fedunlearn.rounds import ClientFailure, Hello

Scalar = bool | bytes | float | int | str
HELLO_FIELDS = ("client_id", "role", "domain", "base_model", "base_model_sha256")


def hello_content(properties: Mapping[str, Scalar]) -> RecordDict:
    """Encode a client's answer to the handshake."""
    return RecordDict({"hello": ConfigRecord(dict(properties))})


def read_hello(node_id: int, content: RecordDict) -> Hello:
    """Decode a handshake.

    Raises:
        SummaryError: a field is missing or of another type; the text names it.
    """
    record = content.config_records.get("hello", ConfigRecord())
    texts = {name: record.get(name) for name in HELLO_FIELDS}
    count = record.get("num_examples")
    for name, value in texts.items():
        if not isinstance(value, str) or not value:
            raise SummaryError(f"handshake of node {node_id}: field {name!r} is {value!r}")
    if not isinstance(count, int):
        raise SummaryError(f"handshake of node {node_id}: field 'num_examples' is {count!r}")
    return Hello(node_id=node_id, num_examples=count, **{k: str(v) for k, v in texts.items()})


def query_content(seconds: float) -> RecordDict:
    """Encode the handshake's question."""
    return RecordDict({"limit": ConfigRecord({"seconds": float(seconds)})})


def task_content(instructions: str, seconds: float) -> RecordDict:
    """Encode a training task: the instructions' JSON, and how long the client may take."""
    content = query_content(seconds)
    content["task"] = ConfigRecord({"instructions": instructions})
    return content


def read_limit(content: RecordDict) -> float:
    """Read how many seconds a client has.

    Raises:
        SummaryError: the message is not one of ours.
    """
    seconds = content.config_records.get("limit", ConfigRecord()).get("seconds")
    if not isinstance(seconds, float):
        raise SummaryError("the server's message carries no time limit")
    return seconds


def read_task(content: RecordDict) -> str:
    """Read the JSON of the instructions.

    Raises:
        SummaryError: the message is not one of ours.
    """
    instructions = content.config_records.get("task", ConfigRecord()).get("instructions")
    if not isinstance(instructions, str):
        raise SummaryError("the server's training message carries no instructions")
    return instructions


def array_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Encode named arrays."""
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def copy_content(arrays: ArrayRecord, dtypes: str, instructions: str, seconds: float) -> RecordDict:
    """Encode a published copy and what to do with it."""
    content = query_content(seconds)
    content["task"] = ConfigRecord({"instructions": instructions, "dtypes": dtypes})
    content["arrays"] = arrays
    return content


def read_copy(content: RecordDict) -> tuple[dict[str, NDArray[np.generic]], str, str]:
    """Decode a published copy: its arrays, the JSON of their dtypes, and of the instructions.

    Raises:
        SummaryError: the message is not one of ours.
    """
    dtypes = content.config_records.get("task", ConfigRecord()).get("dtypes")
    record = content.array_records.get("arrays")
    if not isinstance(dtypes, str) or record is None:
        raise SummaryError("the server's message carries no copy")
    return {name: _decode(name, one) for name, one in record.items()}, dtypes, read_task(content)


def update_content(
    arrays: Mapping[str, NDArray[np.generic]], texts: Mapping[str, str]
) -> RecordDict:
    """Encode an update's arrays and its JSON texts."""
    return RecordDict({"arrays": array_record(arrays), "update": ConfigRecord(dict(texts))})


def read_update(content: RecordDict) -> tuple[dict[str, NDArray[np.generic]], dict[str, object]]:
    """Decode an update's arrays and texts; what they mean is checked elsewhere.

    Raises:
        SummaryError: a record is missing, or an array does not decode; the text names it.
    """
    texts, record = content.config_records.get("update"), content.array_records.get("arrays")
    if texts is None or record is None:
        raise SummaryError(f"the reply holds {sorted(content)}, expected 'arrays' and 'update'")
    return {name: _decode(name, array) for name, array in record.items()}, dict(texts)


def evaluation_task(arrays: ArrayRecord, merge: str, seconds: float) -> RecordDict:
    """Encode an update that clients are to measure on their own data."""
    content = query_content(seconds)
    content["task"] = ConfigRecord({"merge": merge})
    content["arrays"] = arrays
    return content


def read_evaluation_task(content: RecordDict) -> tuple[dict[str, NDArray[np.generic]], str]:
    """Decode an update and its name.

    Raises:
        SummaryError: the message is not one of ours.
    """
    merge = content.config_records.get("task", ConfigRecord()).get("merge")
    record = content.array_records.get("arrays")
    if not isinstance(merge, str) or record is None:
        raise SummaryError("the server's message carries no update to measure")
    return {name: _decode(name, array) for name, array in record.items()}, merge


def evaluation_content(text: str) -> RecordDict:
    """Encode a client's aggregates."""
    return RecordDict({"own": ConfigRecord({"evaluation": text})})


def read_evaluation(content: RecordDict) -> str:
    """Decode a client's aggregates as JSON; what they mean is checked elsewhere.

    Raises:
        SummaryError: the reply holds anything else.
    """
    record = content.config_records.get("own", ConfigRecord())
    text = record.get("evaluation")
    if not isinstance(text, str) or list(content) != ["own"] or len(record) != 1:
        raise SummaryError(f"the reply holds {sorted(content)}, expected 'own' alone")
    return text


def summary_content(arrays: Mapping[str, NDArray[np.generic]], meta: str) -> RecordDict:
    """Encode a summary's named arrays and its JSON."""
    return RecordDict({"arrays": array_record(arrays), "summary": ConfigRecord({"meta": meta})})


def read_summary(content: RecordDict) -> tuple[dict[str, NDArray[np.generic]], str]:
    """Decode a summary's arrays and JSON; what they mean is checked by ``summary.from_wire``.

    Raises:
        SummaryError: a record is missing, or an array does not decode; the text names it.
    """
    meta = content.config_records.get("summary", ConfigRecord()).get("meta")
    record = content.array_records.get("arrays")
    if not isinstance(meta, str) or record is None:
        raise SummaryError(f"the reply holds {sorted(content)}, expected 'arrays' and 'summary'")
    return {name: _decode(name, array) for name, array in record.items()}, meta


def _decode(name: str, array: Array) -> NDArray[np.generic]:
    try:
        return array.numpy()
    except (TypeError, ValueError, OSError, EOFError) as fault:
        raise SummaryError(f"tensor {name!r} does not decode: {fault}") from fault


def failure_content(failure: ClientFailure) -> RecordDict:
    """Encode a client's own report that it failed."""
    return RecordDict({"failure": ConfigRecord(dict(vars(failure)))})


def read_failure(content: RecordDict) -> ClientFailure | None:
    """Decode a client's own report of failure, or return ``None`` if it is something else."""
    if (record := content.config_records.get("failure")) is None:
        return None
    fields = ("client_id", "role", "domain", "reason")
    return ClientFailure(**{name: str(record.get(name, "unknown")) for name in fields})

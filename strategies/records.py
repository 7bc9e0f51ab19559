"""What travels between server and clients, as Flower records; the only place that knows keys.

======== ============ ============================================================================
message  record       content
======== ============ ============================================================================
query    ``limit``    ConfigRecord: ``seconds``, the time the client has; ``salt`` for digests
 reply   ``hello.N``  ConfigRecord: the fields of :class:`fedunlearn.rounds.Hello`, less the node,
                      of the node's client number N; or
         ``failure.N``
                      ConfigRecord: as ``failure`` below, why that client cannot take part
train    ``limit``    as above
         ``task``     ConfigRecord: ``client_id``, which of the node's clients is asked, and
                      ``instructions`` (JSON)
 reply   ``arrays``   ArrayRecord: named arrays of the summary, bfloat16 as uint16 bits
         ``summary``  ConfigRecord: ``meta`` (JSON), ``task`` (digest of the question)
copy     ``limit``    as above, of a ``train.copy``
         ``task``     ConfigRecord: ``client_id``, ``instructions`` (JSON), ``dtypes`` (JSON)
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

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fedunlearn.errors import SummaryError
from fedunlearn.names import is_label, is_name, printable, shown
from fedunlearn.rounds import UNKNOWN_DOMAIN, UNKNOWN_ROLE, ClientFailure, Hello
from fedunlearn.summary import UploadForm
from fedunlearn.tensors.npy import read_npy

Scalar = bool | bytes | float | int | str
SERIALIZED = "numpy.ndarray"  # Flower's name of numpy's file format
_LONGEST_REASON = 2000
_MOST_EXAMPLES = 1 << 40
HELLO_FIELDS = ("client_id", "role", "domain", "base_model", "base_model_sha256")


_HELLO_RULES: Mapping[str, Callable[[str], bool]] = {
    "client_id": is_name,
    "role": is_label,
    "domain": is_label,
    "base_model": lambda text: len(text) <= 4096 and text.isprintable(),
    "base_model_sha256": lambda text: len(text) == 64 and text.isalnum(),
}


def hellos_content(clients: Sequence[Mapping[str, Scalar] | ClientFailure]) -> RecordDict:
    """Encode a node's answer to the handshake.

    Args:
        clients: for each of the node's, its properties, or why it cannot take part.
    """
    content = RecordDict()
    for number, client in enumerate(clients):
        if isinstance(client, ClientFailure):
            content[f"failure.{number}"] = ConfigRecord(dict(vars(client)))
        else:
            content[f"hello.{number}"] = ConfigRecord(dict(client))
    return content


def read_hellos(node_id: int, content: RecordDict) -> list[Hello | ClientFailure]:
    """Decode a handshake: what each of the node's clients says, or why it cannot take part.

    Raises:
        SummaryError: no client says anything, or a field is missing or of another type; the text
            names it.
    """
    found: list[Hello | ClientFailure] = []
    for key, record in content.config_records.items():
        if key.startswith("hello."):
            found.append(_hello(node_id, record))
        elif key.startswith("failure."):
            found.append(_failure(record))
    if not found:
        raise SummaryError(f"handshake of node {node_id}: no client in {sorted(content)}")
    return found


def _hello(node_id: int, record: ConfigRecord) -> Hello:
    texts = {name: record.get(name) for name in HELLO_FIELDS}
    count = record.get("num_examples")
    for name, value in texts.items():
        if not isinstance(value, str) or not value or not _HELLO_RULES[name](value):
            raise SummaryError(f"handshake of node {node_id}: field {name!r} is {shown(value)}")
    if not isinstance(count, int) or not 1 <= count <= _MOST_EXAMPLES:
        raise SummaryError(f"handshake of node {node_id}: field 'num_examples' is {shown(count)}")
    digest = record.get("data_digest", "")
    return Hello(
        node_id=node_id,
        num_examples=count,
        data_digest=digest if isinstance(digest, str) and len(digest) == 64 else "",
        **{k: str(v) for k, v in texts.items()},
    )


def query_content(seconds: float, salt: str = "") -> RecordDict:
    """Encode the handshake's question, with the salt for digests of data."""
    return RecordDict({"limit": ConfigRecord({"seconds": float(seconds), "salt": salt})})


def read_salt(content: RecordDict) -> str:
    """Read the salt of a question; empty where there is none."""
    return str(content.config_records.get("limit", ConfigRecord()).get("salt", ""))


def task_content(client_id: str, instructions: str, seconds: float, salt: str = "") -> RecordDict:
    """Encode a training task: whose, the instructions' JSON, and how long it may take."""
    content = query_content(seconds, salt)
    content["task"] = ConfigRecord({"client_id": client_id, "instructions": instructions})
    return content


def task_digest(content: RecordDict) -> str:
    """Digest which task of which run a message asks for; a client sends it back with its reply."""
    text = f"{read_salt(content)}\0{read_task(content)}"
    return hashlib.sha256(text.encode()).hexdigest()


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
    return _of_task(content, "instructions")


def read_client_id(content: RecordDict) -> str:
    """Read which of the node's clients is asked.

    Raises:
        SummaryError: the message is not one of ours.
    """
    return _of_task(content, "client_id")


def _of_task(content: RecordDict, key: str) -> str:
    text = content.config_records.get("task", ConfigRecord()).get(key)
    if not isinstance(text, str):
        raise SummaryError(f"the server's training message carries no {key}")
    return text


def array_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Encode named arrays."""
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def copy_content(
    client_id: str, arrays: ArrayRecord, dtypes: str, instructions: str, *, seconds: float
) -> RecordDict:
    """Encode a published copy, whom it is for and what to do with it."""
    content = task_content(client_id, instructions, seconds)
    content.config_records["task"]["dtypes"] = dtypes
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
    # left as it is: within one process, the server sends the same record to all
    return {name: _decode(name, one) for name, one in record.items()}, dtypes, read_task(content)


def update_content(
    arrays: Mapping[str, NDArray[np.generic]], texts: Mapping[str, str]
) -> RecordDict:
    """Encode an update's arrays and its JSON texts."""
    return RecordDict({"arrays": array_record(arrays), "update": ConfigRecord(dict(texts))})


def read_update(
    content: RecordDict, form: UploadForm | None = None
) -> tuple[dict[str, NDArray[np.generic]], dict[str, object]]:
    """Decode an update's arrays and texts; what they mean is checked elsewhere.

    Args:
        content: of the reply.
        form: what was asked for; ``None`` admits any array.

    Raises:
        SummaryError: a record is missing, or an array is not of the form or does not decode; the
            text names it.
    """
    texts, record = content.config_records.get("update"), content.array_records.get("arrays")
    if texts is None or record is None:
        raise SummaryError(f"the reply holds {sorted(content)}, expected 'arrays' and 'update'")
    return _take_all(record, form), dict(texts)


def evaluation_task(client_id: str, arrays: ArrayRecord, merge: str, seconds: float) -> RecordDict:
    """Encode an update that a client is to measure on its own data."""
    content = query_content(seconds)
    content["task"] = ConfigRecord({"client_id": client_id, "merge": merge})
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


def summary_content(
    arrays: Mapping[str, NDArray[np.generic]], meta: str, task: str = ""
) -> RecordDict:
    """Encode a summary's named arrays, its JSON, and the digest of the task it answers."""
    told = ConfigRecord({"meta": meta, "task": task})
    return RecordDict({"arrays": array_record(arrays), "summary": told})


def read_answered_task(content: RecordDict) -> str:
    """Read which task a summary answers, as its client says; empty where it does not."""
    return str(content.config_records.get("summary", ConfigRecord()).get("task", ""))


def read_summary(
    content: RecordDict, form: UploadForm | None = None
) -> tuple[dict[str, NDArray[np.generic]], str]:
    """Decode a summary's arrays and JSON; what they mean is checked by ``summary.from_wire``.

    Args:
        content: of the reply.
        form: what was asked for; ``None`` admits any array.

    Raises:
        SummaryError: a record is missing, or an array is not of the form or does not decode; the
            text names it.
    """
    meta = content.config_records.get("summary", ConfigRecord()).get("meta")
    record = content.array_records.get("arrays")
    if not isinstance(meta, str) or record is None:
        raise SummaryError(f"the reply holds {sorted(content)}, expected 'arrays' and 'summary'")
    return _take_all(record, form), meta


def _take_all(record: ArrayRecord, form: UploadForm | None) -> dict[str, NDArray[np.generic]]:
    """Decode arrays, all of them held against the form before the first is looked into.

    Each is taken out of the message as it is copied, so that one payload is in memory, not two.
    """
    for name, array in record.items():
        if form is not None:
            form.admit(name, tuple(array.shape))
    return {name: _decode(name, record.pop(name)).copy() for name in list(record)}


def _decode(name: str, array: Array) -> NDArray[np.generic]:
    """Decode one array without believing it; it lies in the memory of the message."""
    try:
        if array.stype != SERIALIZED:
            raise ValueError(f"it is serialised as {shown(array.stype)}, expected {SERIALIZED!r}")
        decoded = read_npy(array.data)
        if decoded.shape != tuple(array.shape):
            raise ValueError(f"it is announced as {shown(array.shape)}, but has {decoded.shape}")
    except ValueError as fault:
        raise SummaryError(f"tensor {shown(name)} does not decode: {fault}") from fault
    return decoded


def failure_content(failure: ClientFailure) -> RecordDict:
    """Encode a client's own report that it failed."""
    return RecordDict({"failure": ConfigRecord(dict(vars(failure)))})


def read_failure(content: RecordDict) -> ClientFailure | None:
    """Decode a client's own report of failure, or return ``None`` if it is something else."""
    record = content.config_records.get("failure")
    return None if record is None else _failure(record)


def _failure(record: ConfigRecord) -> ClientFailure:
    """Read a failure.

    Names that are none are not repeated, and the reason is cut and freed of control characters:
    all of it ends up in a terminal, a log and a report.
    """
    told = {name: str(record.get(name, "")) for name in ("client_id", "role", "domain")}
    return ClientFailure(
        client_id=told["client_id"] if _names_client(told["client_id"]) else "unknown client",
        role=told["role"] if is_label(told["role"]) else UNKNOWN_ROLE,
        domain=told["domain"] if is_label(told["domain"]) else UNKNOWN_DOMAIN,
        reason=printable(
            str(record.get("reason", "no reason given")), longest=_LONGEST_REASON, lines=True
        ),
    )


def _names_client(text: str) -> bool:
    """A client's id, or the ``node 12`` of one that does not know its own."""
    return is_name(text.removeprefix("node "))

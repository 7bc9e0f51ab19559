"""The content of ``receipt.json``, the bytes that are sealed, and the seal."""

import hashlib
import json
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from fedunlearn.errors import InputError
from fedunlearn.settings import settings
from fedunlearn.storage import read_json, read_typed, replace_json

FORMAT_VERSION = 1
RECEIPT_FILE = "receipt.json"


@settings
class ReceiptClient:
    """A client that the run asked.

    Attributes:
        client_id, role, domain: who it is.
        num_examples: records it said it has.
        data_digest: of those records, HMAC-SHA256 with the receipt's salt; empty: not told.
        fate: see :class:`fedunlearn.report.Fate`.
    """

    client_id: str
    role: str
    domain: str
    num_examples: int
    data_digest: str
    fate: str


@settings
class Previous:
    """The receipt of the run whose result this one started from.

    Attributes:
        sha256: of its file.
        path: where it was.
        result: the merge or arm that was gone on with.
    """

    sha256: str
    path: str
    result: str


@settings
class Unlearned:
    """One step of a sequence.

    Attributes:
        run: name of the run.
        requests: it answered.
        clients: forget clients whose data was unlearned.
    """

    run: str
    requests: tuple[str, ...]
    clients: tuple[str, ...]


@settings
class Seal:
    """What makes a later change show.

    Attributes:
        kind: ``sha256``: whoever changes the receipt can make a new seal; ``ed25519``: only who
            holds the key can.
        digest: SHA-256 of the sealed bytes.
        signature: of the sealed bytes, hexadecimal; empty without a key.
        public_key: that it can be checked with, hexadecimal; empty without a key.
    """

    kind: Literal["sha256", "ed25519"]
    digest: str
    signature: str = ""
    public_key: str = ""


@settings
class Receipt:
    """The content of ``receipt.json``.

    Attributes:
        format_version: of the file.
        run: name from the config.
        requests: ids of the erasure requests, from the config.
        issued_at: Unix seconds, by the server's clock.
        clients: who was asked, by id.
        salt: of the data's digests.
        base_model: name of the model that the run started from.
        base_model_sha256: hash of what clients started from.
        results: merge or arm to the hash of the model with its update, by
            :func:`fedunlearn.models.loading.fingerprint`.
        metrics: model (``base``, or a merge or arm) to question set to score to mean.
        versions: of the software.
        damage: merge to retain client to the damage it has taken: the largest over the tensors
            of the update, added up over the requests of the sequence.
        unlearned: what the result has unlearned so far, request by request, this one last.
        files: path in the run's folder to SHA-256.
        previous: the receipt before, in a sequence of requests.
        seal: over all of the above.
    """

    format_version: int = FORMAT_VERSION
    run: str
    requests: tuple[str, ...]
    issued_at: float
    clients: tuple[ReceiptClient, ...]
    salt: str
    base_model: str
    base_model_sha256: str
    results: dict[str, str]
    metrics: dict[str, dict[str, dict[str, float]]]
    versions: dict[str, str]
    damage: dict[str, dict[str, float]] = field(default_factory=dict)
    unlearned: tuple[Unlearned, ...] = ()
    files: dict[str, str]
    previous: Previous | None = None
    seal: Seal | None = None


_SCHEMA = TypeAdapter(Receipt)


def sealed_bytes(body: dict[str, Any]) -> bytes:
    """Write everything but the seal in one way only: sorted keys, no spaces, ASCII."""
    rest = {key: value for key, value in body.items() if key != "seal"}
    return json.dumps(rest, sort_keys=True, separators=(",", ":")).encode("ascii")


def body_of(receipt: Receipt) -> dict[str, Any]:
    """The receipt as plain JSON values."""
    body: dict[str, Any] = _SCHEMA.dump_python(receipt, mode="json")
    return body


def write_receipt(path: Path, receipt: Receipt) -> None:
    """Write the file, whole or not at all."""
    replace_json(path, body_of(receipt))


def read_receipt(path: Path) -> tuple[Receipt, bytes]:
    """Read a receipt, and the bytes that its seal is over, as they are in the file.

    Raises:
        InputError: it is missing or malformed, has no seal, or is of another version.
    """
    receipt = read_typed(path, _SCHEMA)
    if receipt.format_version != FORMAT_VERSION or receipt.seal is None:
        raise InputError(f"{path} is no sealed receipt of format {FORMAT_VERSION}")
    return receipt, sealed_bytes(read_json(path))


def file_digest(path: Path) -> str:
    """SHA-256 of a file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as fault:
        raise InputError(f"{path} cannot be read: {fault.strerror}") from fault

"""Writes the receipt of a finished run."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedunlearn.events import EVENTS_FILE, read_events
from fedunlearn.receipts.document import (
    RECEIPT_FILE,
    Receipt,
    ReceiptClient,
    Seal,
    Unlearned,
    body_of,
    file_digest,
    sealed_bytes,
    write_receipt,
)
from fedunlearn.receipts.keys import raw, read_private_key
from fedunlearn.receipts.sequence import Standing
from fedunlearn.report import REPORT_JSON, Fate, RunFacts
from fedunlearn.scores import METRIC_NAMES, SetReport

CONFIG_FILE = "config.yaml"
_RESULTS = ("*/*/delta.safetensors", "*/*/merge.json", "*/*/unlearned.json")


@dataclass(frozen=True)
class RunRecord:
    """What a run found that belongs in its receipt.

    Attributes:
        facts: of the run.
        requests: ids of the erasure requests.
        fates: by client.
        results: merge or arm to the hash of the model with its update.
        scores: ``base``, merge or arm to its scores.
        damage: merge to retain client to the largest damage over the tensors of the update.
        previous: the receipt before, and what of it is gone on with, if there is one.
        key: file of the server's Ed25519 key; ``None``: the seal is a hash only.
    """

    facts: RunFacts
    requests: Sequence[str]
    fates: Sequence[Fate]
    results: Mapping[str, str]
    scores: Mapping[str, Mapping[str, SetReport]]
    damage: Mapping[str, Mapping[str, float]]
    previous: Standing | None = None
    key: str | None = None


def issue(run_dir: Path, record: RunRecord, *, now: float) -> Receipt:
    """Write ``receipt.json`` over what lies in the run's folder.

    Args:
        run_dir: of a run whose report is written.
        record: what it found.
        now: Unix seconds.

    Raises:
        InputError: a file or the key cannot be read.
    """
    log = run_dir / EVENTS_FILE
    hellos = (
        [one for one in read_events(log) if one["event"] == "handshake"] if log.exists() else []
    )
    before = record.previous
    spent = before.damage if before else {}
    last = hellos[-1] if hellos else {"clients": []}
    receipt = Receipt(
        run=record.facts.name,
        requests=tuple(record.requests),
        issued_at=now,
        clients=_clients(last["clients"], record.fates),
        salt=str(last.get("salt", "")),
        base_model=record.facts.base_model,
        base_model_sha256=record.facts.base_model_sha256,
        results=dict(record.results),
        metrics={model: _means(sets) for model, sets in record.scores.items()},
        versions=record.facts.versions,
        damage={merge: _sum(taken, spent) for merge, taken in record.damage.items()},
        unlearned=(*(before.unlearned if before else ()), _this(record)),
        files={name: file_digest(run_dir / name) for name in _files(run_dir)},
        previous=before.previous if before else None,
    )
    receipt = replace(receipt, seal=_seal(sealed_bytes(body_of(receipt)), record.key))
    write_receipt(run_dir / RECEIPT_FILE, receipt)
    return receipt


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in sorted({*one, *other})}


def _this(record: RunRecord) -> Unlearned:
    gone = tuple(fate.client_id for fate in record.fates if fate.fate == "unlearned")
    return Unlearned(run=record.facts.name, requests=tuple(record.requests), clients=gone)


def _clients(
    hellos: Sequence[Mapping[str, object]], fates: Sequence[Fate]
) -> tuple[ReceiptClient, ...]:
    told = {str(one["client_id"]): one for one in hellos}
    return tuple(
        ReceiptClient(
            client_id=fate.client_id,
            role=fate.role,
            domain=fate.domain,
            num_examples=int(str(told.get(fate.client_id, {}).get("num_examples", 0))),
            data_digest=str(told.get(fate.client_id, {}).get("data_digest", "")),
            fate=fate.fate,
        )
        for fate in fates
    )


def _means(sets: Mapping[str, SetReport]) -> dict[str, dict[str, float]]:
    return {
        name: {metric: mean for metric in METRIC_NAMES if (mean := one.mean(metric)) is not None}
        for name, one in sets.items()
    }


def _files(run_dir: Path) -> list[str]:
    found = [run_dir / name for name in (CONFIG_FILE, EVENTS_FILE, REPORT_JSON)]
    found += [path for pattern in _RESULTS for path in run_dir.glob(pattern)]
    return sorted(str(path.relative_to(run_dir)) for path in found if path.is_file())


def _seal(content: bytes, key: str | None) -> Seal:
    digest = hashlib.sha256(content).hexdigest()
    if key is None:
        return Seal(kind="sha256", digest=digest)
    private = read_private_key(Path(key))
    return Seal(
        kind="ed25519",
        digest=digest,
        signature=private.sign(content).hex(),
        public_key=raw(private.public_key()),
    )

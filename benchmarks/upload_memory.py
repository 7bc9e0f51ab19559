"""Peak memory of the server while clients upload, and while it merges what they sent.

    python benchmarks/upload_memory.py FOLDER [--clients 8] [--megabytes 300]

Replies are made first and put on disk, then read one at a time into Flower's messages. The peak is
that of the process's own memory (``RssAnon``, looked at every 2 ms) above where it began; mapped
files are not counted. Target: one payload, not clients x payload.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from memory import peak_memory

from fedunlearn.aggregation import MergeSettings
from fedunlearn.aggregation.files import merge_to
from fedunlearn.events import EventLog
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.rounds import Hello, Roster, RoundRules
from fedunlearn.summary import ClientSummary, SummaryMeta, layout_digest, open_summaries, to_wire
from fedunlearn.training.client_settings import ClientInstructions
from fedunlearn.training.fisher_pass import FisherSettings
from fedunlearn.training.loop import TrainingSettings
from strategies import records
from strategies.exchange import Answer, Patience
from strategies.firm import FirmStrategy

MIB = 1 << 20
COLUMNS, TENSORS, RANK = 4096, 8, 8


def summary_of(client_id: str, rows: int, seed: int) -> ClientSummary:
    draw = torch.Generator().manual_seed(seed)
    adapter, fisher = {}, {}
    for n in range(TENSORS):
        module = f"model.layers.{n}.mlp.down_proj"
        key = f"base_model.model.{module}"
        adapter[f"{key}.lora_A.weight"] = torch.randn(RANK, COLUMNS, generator=draw)
        adapter[f"{key}.lora_B.weight"] = torch.randn(rows, RANK, generator=draw)
        fisher[f"{module}.weight"] = torch.rand(rows, COLUMNS, generator=draw).bfloat16()
    role = "retain" if client_id.startswith("r") else "forget"
    meta = SummaryMeta(
        client_id=client_id,
        role=role,  # type: ignore[arg-type]
        domain="d",
        objective="npo",
        num_examples=1,
        base_model="m",
        base_model_sha256="0" * 64,
        layout_digest=layout_digest(fisher),
    )
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16}
    return ClientSummary(meta=meta, adapter_config=config, adapter=adapter, fisher=fisher)


def digest(tensors: dict[str, torch.Tensor]) -> str:
    found = hashlib.sha256()
    for name in sorted(tensors):
        bits = tensors[name].contiguous().view(torch.uint8)
        found.update(name.encode() + bytes(bits.numpy().data))
    return found.hexdigest()


class Uploads:
    """Replies on disk as they would come over the wire; one is read after the other."""

    def __init__(self, folder: Path, strategy: FirmStrategy, clients: int, rows: int) -> None:
        self.hashes: dict[str, str] = {}
        self.payload = 0
        self._folder, self._strategy = folder, strategy
        self.hellos = tuple(hello_of(n) for n in range(clients))
        strategy.attendance.roster = Roster(self.hellos)
        for hello in self.hellos:
            self._write(hello, summary_of(hello.client_id, rows, hello.node_id))

    def _write(self, hello: Hello, summary: ClientSummary) -> None:
        self.hashes[hello.client_id] = digest({**summary.adapter, **summary.fisher})
        arrays, meta = to_wire(summary)
        self.payload = sum(array.nbytes for array in arrays.values())
        place = self._folder / hello.client_id
        place.mkdir(parents=True)
        (place / "meta").write_text(meta)
        for number, (name, array) in enumerate(sorted(arrays.items())):
            message = Array(array)
            (place / f"{number}.npy").write_bytes(message.data)
            index = [name, message.dtype, list(message.shape)]
            (place / f"{number}.json").write_text(json.dumps(index))

    def __iter__(self) -> Iterator[Answer]:
        for hello in self.hellos:
            yield Answer(hello.node_id, self._content(hello))

    def _content(self, hello: Hello) -> RecordDict:
        place = self._folder / hello.client_id
        arrays = ArrayRecord()
        for index in sorted(place.glob("*.json")):
            name, dtype, shape = json.loads(index.read_text())
            data = index.with_suffix(".npy").read_bytes()
            arrays[name] = Array(dtype, tuple(shape), records.SERIALIZED, data)
        question = self._strategy._task(1).content(hello.node_id, 1.0)
        task = records.task_digest(question)
        told = ConfigRecord({"meta": (place / "meta").read_text(), "task": task})
        return RecordDict({"arrays": arrays, "summary": told})


def hello_of(number: int) -> Hello:
    role = "forget" if number else "retain"
    return Hello(number, f"{role[0]}-{number}", role, "d", 1, "m", "0" * 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=300)
    chosen = parser.parse_args()
    rows = chosen.megabytes * MIB // (2 * COLUMNS * TENSORS)
    brief = TrainingSettings(objective={"name": "npo"})
    strategy = FirmStrategy(
        ClientInstructions(
            seed=0,
            lora=LoraSettings(rank=RANK, alpha=16),
            forget=brief,
            retain=brief,
            fisher=FisherSettings(),
        ),
        run_dir=chosen.folder,
        rules=RoundRules(1.0, 1.0, 1.0),
        events=EventLog(chosen.folder / "events.jsonl", clock=time.time),
        patience=Patience(clock=time.monotonic, sleep=time.sleep),
        weights={f"model.layers.{n}.mlp.down_proj.weight": (rows, COLUMNS) for n in range(TENSORS)},
    )
    uploads = Uploads(chosen.folder / "replies", strategy, chosen.clients, rows)
    strategy.spool.prepare()
    with peak_memory() as reading:
        for _ in uploads:
            break
    start = time.monotonic()
    with peak_memory() as taking:
        strategy._collect(iter(uploads))
    took = time.monotonic() - start
    summaries = open_summaries(strategy.spool.summaries)
    for one in summaries:
        got = digest({**dict(one.adapter), **dict(one.fisher)})
        assert got == uploads.hashes[one.meta.client_id], one.meta.client_id
    with peak_memory() as merging:
        merge_to(chosen.folder / "merged", summaries, MergeSettings(method="firm"))
    payload = uploads.payload
    print(f"{chosen.clients} clients, {payload / MIB:.0f} MiB each, hashes equal, {took:.1f} s")
    for what, found in (
        ("reading one reply", reading),
        ("taking all", taking),
        ("merging", merging),
    ):
        print(f"{what}: peak {found() / MIB:.0f} MiB, {found() / payload:.2f} payloads")


if __name__ == "__main__":
    main()

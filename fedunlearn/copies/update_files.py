"""Updates on disk, where they wait until all clients of a copy have sent theirs."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedunlearn.copies.update import CopyUpdate, decode_meta, encode_meta
from fedunlearn.storage import TensorFile, write_tensors

_TENSORS, _META = "update.safetensors", "update.json"


class UpdateSpool:
    """Updates of one copy, one folder a client; read in the order of ids, not of arrival.

    A sum of float32 numbers depends on the order of its terms; and only one update is in memory
    at a time.

    Args:
        folder: made when the first comes; what an interrupted run left there is removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)

    def keep(self, update: CopyUpdate) -> None:
        """Write an update; one by the same client is replaced."""
        folder = self._folder / update.meta.client_id
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / _TENSORS, update.tensors)
        (folder / _META).write_text(encode_meta(update.meta), encoding="utf-8")

    def updates(self, clients: Iterable[str]) -> Iterator[CopyUpdate]:
        """Yield the updates of these clients, by id; each lies in its mapped file."""
        for client_id in sorted(clients):
            folder = self._folder / client_id
            meta = decode_meta((folder / _META).read_text(encoding="utf-8"))
            yield CopyUpdate(meta, TensorFile(folder / _TENSORS))

    def clear(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder, ignore_errors=True)

"""What the server of an arm keeps on disk to go on after an interruption, bit for bit.

The folder holds the secret of the copies: whoever reads it can undo every copy. It is made for its
owner's eyes only and belongs on no shared disk.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from torch import Tensor

from fedunlearn.errors import InputError
from fedunlearn.settings import settings
from fedunlearn.storage import TensorFile, read_typed, replace_json, write_tensors

FORMAT_VERSION = 1
STATE_FILE = "state.json"
_OWNER_ONLY = 0o700


@settings
class RoundsState:
    """Where the rounds of an arm stand; tensors lie beside it.

    Attributes:
        format_version: of the folder.
        made_from: digest of everything the rounds depend on; another one is another run.
        secret: of the copies.
        server_round: the round that is open, from 1; one more than there are when all are done.
        copies_done: of it.
        clients: id to weight of the clients of the open round.
        facts: of the copies published so far, for the report.
    """

    format_version: int = FORMAT_VERSION
    made_from: str
    secret: dict[str, str]
    server_round: int = 1
    copies_done: int = 0
    clients: dict[str, float] = field(default_factory=dict)
    facts: tuple[dict[str, Any], ...] = ()


_SCHEMA = TypeAdapter(RoundsState)


class StateFolder:
    """The state of one arm.

    ``state.json`` is replaced last and names the round and copy, which name the tensors' files: an
    interruption at any moment leaves the state from before or the one after.

    Args:
        folder: made when something is first written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, made_from: str) -> RoundsState | None:
        """Read where the rounds stand; ``None`` where nothing is stored.

        Raises:
            InputError: what is stored belongs to another run, or is damaged.
        """
        path = self.folder / STATE_FILE
        if not path.is_file():
            return None
        state = read_typed(path, _SCHEMA)
        if state.format_version != FORMAT_VERSION or state.made_from != made_from:
            raise InputError(
                f"{self.folder} holds the state of a run with other settings, clients or weights; "
                "go on with those, or name another folder"
            )
        return state

    def tensors(self, state: RoundsState) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Weights at the beginning of the open round, and its sum so far; empty where untouched.

        Raises:
            InputError: a file is missing or damaged.
        """
        weights = TensorFile(self._weights(state)) if state.server_round > 1 else {}
        return weights, TensorFile(self._sum(state)) if state.copies_done else {}

    def write(
        self, state: RoundsState, *, weights: Mapping[str, Tensor], sums: Mapping[str, Tensor]
    ) -> None:
        """Replace what is stored.

        Args:
            state: where the rounds stand.
            weights: at the beginning of the open round.
            sums: of it, so far.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(_OWNER_ONLY)
        needed = [STATE_FILE]
        if state.server_round > 1:
            needed.append(_put(self._weights(state), weights))
        if state.copies_done:
            needed.append(_put(self._sum(state), sums))
        replace_json(self.folder / STATE_FILE, _SCHEMA.dump_python(state, mode="json"))
        for path in self.folder.iterdir():
            if path.name not in needed:
                path.unlink()

    def clear(self) -> None:
        """Remove everything, the secret first."""
        (self.folder / STATE_FILE).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _weights(self, state: RoundsState) -> Path:
        return self.folder / f"weights-{state.server_round}.safetensors"

    def _sum(self, state: RoundsState) -> Path:
        return self.folder / f"sum-{state.server_round}-{state.copies_done}.safetensors"


def _put(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write a file that is not there yet, whole or not at all; return its name."""
    if not path.is_file():
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        write_tensors(partial, tensors)
        partial.replace(path)
    return path.name

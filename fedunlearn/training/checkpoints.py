"""A training's state in one file: there whole or not at all, and checked before it is used."""

import hashlib
import io
import json
import logging
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

VERSION = 1
State = dict[str, Any]
"""Tensors and plain numbers, by name."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoints:
    """Where a training keeps its state, and how often.

    The file is a line of JSON (version, task, SHA-256 of the rest) and what ``torch.save`` makes.

    Attributes:
        path: the file; only the last state is kept.
        task: digest of everything the training depends on.
        every: optimiser steps from one to the next.
    """

    path: Path
    task: str
    every: int

    def due(self, step: int) -> bool:
        """Whether a state should be kept after ``step`` optimiser steps."""
        return step % self.every == 0

    def save(self, state: State) -> None:
        """Keep a state in place of the last one; a kill at any moment leaves one of the two.

        Where the disk has no room the log says so, the last one stays, and training goes on.
        """
        payload = io.BytesIO()
        torch.save(state, payload)
        content = payload.getvalue()
        head = {"version": VERSION, "task": self.task, "sha256": _digest(content)}
        partial = self.path.with_name(f".{self.path.name}.partial")
        try:
            with partial.open("wb") as file:
                file.write(json.dumps(head).encode() + b"\n" + content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path)
        except OSError as fault:
            partial.unlink(missing_ok=True)
            logger.warning("checkpoint %s cannot be written: %s", self.path, fault.strerror)

    def load(self) -> State | None:
        """Return the last state; ``None`` without one.

        A file that is truncated, changed, of another task or of another version is named in the
        log, and left out: training then starts from the beginning.
        """
        if not self.path.exists():
            return None
        try:
            return self._read()
        except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as fault:
            logger.warning("checkpoint %s is not used, training starts anew: %s", self.path, fault)
            return None

    def remove(self) -> None:
        """Forget the state; training is done."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> State:
        line, _, content = self.path.read_bytes().partition(b"\n")
        head = json.loads(line)
        if not isinstance(head, dict) or head.get("version") != VERSION:
            raise ValueError(f"it is not of version {VERSION}")
        if head.get("task") != self.task:
            raise ValueError(f"it is of another task, {str(head.get('task'))[:12]}")
        if head.get("sha256") != _digest(content):
            raise ValueError("its content is not what was written")
        state: State = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
        return state


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""A client's own folder: what it has done of a task survives its process.

::

    <folder>/<client_id>/task.json     digests of everything the result depends on
    <folder>/<client_id>/checkpoint    while it trains
    <folder>/<client_id>/summary/      once it is done, until the client gets another task
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter

from fedunlearn import __version__
from fedunlearn.data.reading import read_training_records
from fedunlearn.data.refusals import read_refusals
from fedunlearn.errors import InputError, RunError, SummaryError
from fedunlearn.models.loading import LoadedModel
from fedunlearn.settings import settings
from fedunlearn.storage import read_json, replace_json
from fedunlearn.summary import ClientSummary, load_summary, save_summary
from fedunlearn.training.checkpoints import Checkpoints
from fedunlearn.training.client_settings import ClientIdentity, ClientInstructions

_SOFTWARE = ("torch", "transformers", "peft")
_INSTRUCTIONS = TypeAdapter(ClientInstructions)

logger = logging.getLogger(__name__)


@settings
class ResumeSettings:
    """What a client keeps on its disk, to go on after its process was killed.

    Attributes:
        folder: for checkpoints and finished summaries, one folder a client below it; ``None``
            keeps nothing.
        every_steps: optimiser steps from one checkpoint to the next.
    """

    folder: str | None = None
    every_steps: int = 50

    def __post_init__(self) -> None:
        if self.every_steps < 1:
            raise ValueError(f"every_steps must be >= 1, got {self.every_steps}")


def task_of(
    base: LoadedModel, identity: ClientIdentity, instructions: ClientInstructions
) -> dict[str, str]:
    """Digest everything that a client's summary depends on, part by part.

    Raises:
        DataError: a data file of the client's is missing or malformed.
    """
    chosen = base.settings
    told = _INSTRUCTIONS.dump_json(instructions).decode()
    return {
        "client": f"{identity.id} ({identity.role}, {identity.domain})",
        "instructions": _digest(told),
        "base model": base.start_sha256,
        "data": _digest(*_data(identity)),
        "device": f"{base.device.type}, {chosen.quantization if chosen else None}",
        "software": ", ".join(
            (f"fedunlearn {__version__}", *(f"{one} {version(one)}" for one in _SOFTWARE))
        ),
    }


def _data(identity: ClientIdentity) -> Iterator[str]:
    for spec in (identity.data, identity.retain_data):
        yield repr(read_training_records(spec)) if spec is not None else ""
    if identity.refusals is not None:
        yield repr(read_refusals(Path(identity.refusals).expanduser()))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@dataclass(frozen=True)
class Workbench:
    """One client's folder, made ready for one task.

    Attributes:
        folder: the client's own.
        checkpoints: of its training.
    """

    folder: Path
    checkpoints: Checkpoints

    def finished(self) -> ClientSummary | None:
        """Return the summary of this very task, if it is there and whole."""
        if not self._summary.is_dir():
            return None
        try:
            return load_summary(self._summary)
        except SummaryError as fault:
            logger.warning("kept summary is not used, it is made again: %s", fault)
            return None

    def finish(self, summary: ClientSummary) -> None:
        """Keep the summary, and only then drop what it came from.

        A full disk is named in the log and no failure: the summary is there to be sent.
        """
        if self._summary.exists():
            shutil.rmtree(self._summary)  # it was found to be broken
        try:
            save_summary(summary, self._summary)
        except RunError as fault:
            logger.warning("the finished summary is sent, but not kept: %s", fault)
            return
        self.checkpoints.remove()

    @property
    def _summary(self) -> Path:
        return self.folder / "summary"


@contextmanager
def workbench(
    chosen: ResumeSettings, client_id: str, task: Mapping[str, str]
) -> Iterator[Workbench]:
    """Take a client's folder for the length of the block, and clear it of any other task.

    Args:
        chosen: with a folder.
        client_id: names the client's folder.
        task: from :func:`task_of`.

    Raises:
        InputError: the folder cannot be made.
        RunError: another process works in it.
    """
    folder = Path(chosen.folder or "").expanduser() / client_id
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise InputError(f"resume.folder {folder} cannot be made: {fault.strerror}") from fault
    with _alone(folder):
        _clear_of_others(folder, task)
        digest = _digest(json.dumps(task, sort_keys=True))
        yield Workbench(folder, Checkpoints(folder / "checkpoint", digest, chosen.every_steps))


def _clear_of_others(folder: Path, task: Mapping[str, str]) -> None:
    """Remove what is left of another task, and say in what it differs."""
    file = folder / "task.json"
    if file.exists():
        try:
            before = read_json(file)
        except InputError:
            before = {"task.json": "unreadable"}
        if before == dict(task):
            return
        others = sorted(key for key in {*before, *task} if before.get(key) != task.get(key))
        logger.warning(
            "what %s holds is of another task and is removed; different: %s",
            folder,
            ", ".join(others),
        )
    (folder / "checkpoint").unlink(missing_ok=True)
    shutil.rmtree(folder / "summary", ignore_errors=True)
    replace_json(file, task)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse a second process; the system gives the lock back when this one ends or is killed."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise RunError(
            f"another process works in {folder}; wait for it to end, or set resume.folder to "
            "another folder"
        ) from None
    try:
        yield
    finally:
        os.close(handle)

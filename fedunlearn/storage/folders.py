"""Result folders appear under their name only when everything in them is written."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedunlearn.errors import InputError, RunError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def atomic_folder(target: Path, *, marker: str) -> Iterator[Path]:
    """Give an empty folder to write to and, if the block ends well, rename it to ``target``.

    The folder being written lies beside the target under a name with a leading dot. If the
    block raises, that folder is removed and the target is as before. An existing target is
    replaced as a whole, so that no stale file survives, but only if it is ours or empty.

    Args:
        target: where the folder is to be.
        marker: file by which an earlier result of the same kind is recognised.

    Raises:
        InputError: something else is at ``target``, or nothing can be written there; nothing is
            touched.
        RunError: the disk became full in the block; nothing is left of it.
    """
    with _named(target):
        target = target.expanduser().resolve()  # a link stays one: what it points to is replaced
        _refuse_foreign(target, marker)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        _remove(partial)
        partial.mkdir()
    try:
        yield partial
        _swap(partial, target)
    except OSError as fault:
        if fault.errno not in _FULL:
            raise
        raise RunError(
            f"{target} was not written: {fault.strerror}; make room, or name a folder on another "
            "disk"
        ) from fault
    finally:
        _remove(partial)


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Make ``folder`` before the work of the block, not after it; undone if the block raises.

    Raises:
        InputError: it cannot be made, or not written to, or holds something already.
    """
    with _named(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} is not empty; name another folder")
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        yield
    except BaseException:
        if made and not any(folder.iterdir()):
            folder.rmdir()
        raise


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Say of a folder that cannot be used what the system says of it."""
    try:
        yield
    except (OSError, ValueError) as fault:  # ValueError: a path that no system has
        why = getattr(fault, "strerror", None) or fault
        raise InputError(
            f"{str(folder)[:200]!r} cannot be written: {why}; name another folder"
        ) from fault


def _refuse_foreign(target: Path, marker: str) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"{target} is a file; name a folder for the result")
    if any(target.iterdir()) and not (target / marker).is_file():
        raise InputError(
            f"{target} holds files that are not an earlier result (it has no {marker}); "
            "name another folder"
        )


def _swap(partial: Path, target: Path) -> None:
    """Put ``partial`` in the place of ``target``; the old one is deleted last."""
    if not target.exists():
        partial.rename(target)
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    _remove(old)
    target.rename(old)
    try:
        partial.rename(target)
    except OSError:
        old.rename(target)
        raise
    _remove(old)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)

"""Result folders appear under their name only when everything in them is written."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedunlearn.errors import InputError


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
        InputError: something else is at ``target``; nothing is touched.
    """
    target = target.expanduser().absolute()
    _refuse_foreign(target, marker)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    _remove(partial)
    partial.mkdir()
    try:
        yield partial
        _swap(partial, target)
    finally:
        _remove(partial)


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

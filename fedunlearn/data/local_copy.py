"""Finds the files of a data set in a local copy of it, so that nothing is fetched.

A local copy is any of: a file; a folder with the files of the hub repository, as a download makes
it; a data set's folder in the hub's cache (``datasets--<owner>--<name>``) or in the cache of
``datasets`` (``<owner>___<name>``); what ``save_to_disk`` wrote.
"""

from collections.abc import Iterator
from pathlib import Path

from fedunlearn.data.files import TABLE_SUFFIXES
from fedunlearn.errors import DataError

MORE = "*"


def find_tables(
    folder: Path, *, config: str | None, split: str, revision: str | None = None
) -> list[Path]:
    """Find the files of one split.

    Args:
        folder: the local copy, or a single file, which is taken as it is.
        config: the data set's configuration (subset), where it has several.
        split: of the configuration.
        revision: commit or branch; only a folder of the hub's cache holds several.

    Returns:
        Paths in the order of their names.

    Raises:
        DataError: there is no such folder, file or revision; the text says what was looked for.
    """
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist; `path` is a file or the folder of a local copy")
    root, tried = _snapshot(folder, revision), []
    for pattern in _patterns(config, split):
        tried.append(pattern)
        if found := sorted(path for path in root.glob(pattern) if _is_table(path)):
            return found
    raise DataError(
        f"{root} has no file of {f'config {config!r}, ' if config else ''}split {split!r}; looked "
        f"for {', '.join(tried)} with the endings {', '.join(TABLE_SUFFIXES)}"
    )


def _is_table(path: Path) -> bool:
    return path.suffix in TABLE_SUFFIXES and path.name not in _DESCRIPTIONS


_DESCRIPTIONS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")


def _patterns(config: str | None, split: str) -> Iterator[str]:
    """Where hub repositories, downloads and caches keep a split, the surest place first."""
    if config:
        yield f"{config}/{split}-{MORE}"
        yield f"{config}/{split}.*"
        yield f"{config}/{split}/{MORE}"
        yield f"{config}/*/*/*-{split}*.arrow"
        yield f"{config}_{split}.*"
        yield f"{config}.*"
    else:
        yield f"data/{split}-{MORE}"
        yield f"data/{split}.*"
        yield f"default/*/*/*-{split}*.arrow"
    yield f"{split}-{MORE}"
    yield f"{split}.*"
    yield f"{split}/{MORE}"
    yield f"*-{split}*.arrow"


def _snapshot(folder: Path, revision: str | None) -> Path:
    """The revision's folder where the hub's cache keeps several, or the folder itself."""
    snapshots = folder / "snapshots"
    if not snapshots.is_dir():
        if revision is not None:
            raise DataError(
                f"{folder} is a plain copy, which holds no revisions: leave out `revision`, or "
                "give the data set's folder of the hub's cache"
            )
        return folder
    name = revision or "main"
    ref = folder / "refs" / name
    found = snapshots / (ref.read_text(encoding="utf-8").strip() if ref.is_file() else name)
    if not found.is_dir():
        known = ", ".join(sorted(path.name for path in snapshots.iterdir())) or "none"
        raise DataError(f"{folder} holds no revision {name!r}; it has {known}")
    return found

"""Reads tables from local files: JSON, JSON lines, CSV, Parquet, Arrow and plain text.

The suffix says which. Libraries that only some formats need are imported when one is read.
"""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedunlearn.data.rows import Row
from fedunlearn.errors import DataError

TABLE_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".arrow", ".txt")
"""What :func:`read_table` can read."""


def read_table(path: Path) -> Iterator[Row]:
    """Read a file by its suffix; one that is unknown is read as JSON lines.

    Raises:
        DataError: the file is missing, unreadable or malformed; the text names file and line.
    """
    return _READERS.get(path.suffix.lower(), read_json)(path)


def read_json(path: Path) -> Iterator[Row]:
    """Read one JSON object a line, or one array of objects.

    Raises:
        DataError: a line is no JSON object; the text names it.
    """
    text = _text(path)
    if text.lstrip().startswith("["):
        yield from _array(path, text)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield _object(_decoded(line, where), where)


def read_csv(
    path: Path, *, delimiter: str = ",", header: Sequence[str] | None = None
) -> Iterator[Row]:
    """Read comma-separated values.

    Args:
        path: UTF-8, with or without a byte order mark.
        delimiter: between cells.
        header: names of the columns; ``None``: the first line has them.

    Raises:
        DataError: a line has more or fewer cells than there are columns, or quotes do not close.
    """
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a book fits into a cell
    reader = csv.reader(_text(path).splitlines(keepends=True), delimiter=delimiter, strict=True)
    names, number = list(header or ()), 0
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as fault:
            raise DataError(f"{path}, line {number}: no CSV ({fault})") from None
        if cells is None:
            return
        if not cells:
            continue
        if not names:
            names = _header(path, cells)
            continue
        if len(cells) != len(names):
            raise DataError(
                f"{path}, line {number}: {len(cells)} cells, but there are {len(names)} columns "
                f"({', '.join(names)}); put cells that hold {delimiter!r} in double quotes"
            )
        yield Row(dict(zip(names, cells, strict=True)), f"{path}, line {number}")


def read_parquet(path: Path) -> Iterator[Row]:
    """Read an Apache Parquet file.

    Raises:
        DataError: the file is missing or no Parquet.
    """
    return _table_rows(path, "Parquet", _parquet_batches)


def read_arrow(path: Path) -> Iterator[Row]:
    """Read an Arrow stream, as ``datasets`` keeps them in its cache and saves them to disk.

    Raises:
        DataError: the file is missing or no Arrow stream.
    """
    return _table_rows(path, "Arrow", _arrow_batches)


def _parquet_batches(path: Path) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as table:
        yield from table.iter_batches()


def _arrow_batches(path: Path) -> Iterator[Any]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        yield from stream


def _table_rows(path: Path, kind: str, batches: Callable[[Path], Iterator[Any]]) -> Iterator[Row]:
    import pyarrow as pa

    number = 0
    try:
        for batch in batches(path):
            for values in batch.to_pylist():
                number += 1
                yield Row(values, f"{path}, row {number}")
    except FileNotFoundError:
        raise DataError(f"data file {path} does not exist; check the path") from None
    except (OSError, pa.ArrowException) as fault:
        raise DataError(f"data file {path} cannot be read as {kind}: {fault}") from None


def read_text(path: Path) -> Iterator[Row]:
    """Read a plain text as one passage.

    Raises:
        DataError: the file is missing or no UTF-8 text.
    """
    yield Row({"text": _text(path)}, str(path))


_READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".txt": read_text,
}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"data file {path} does not exist; check the path") from None
    except (OSError, ValueError) as fault:  # ValueError: other bytes, or a path no system has
        raise DataError(f"data file {path} cannot be read as UTF-8 text: {fault}") from None


def _array(path: Path, text: str) -> Iterator[Row]:
    rows = _decoded(text, str(path))
    if not isinstance(rows, list):
        raise DataError(f"{path}: expected an array of objects, got {type(rows).__name__}")
    for number, value in enumerate(rows, start=1):
        where = f"{path}, row {number}"
        yield _object(value, where)


def _decoded(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise DataError(f"{where}: not JSON ({getattr(fault, 'msg', fault)})") from None


def _object(value: object, where: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected an object, got {type(value).__name__}")
    return Row(value, where)


def _header(path: Path, cells: Sequence[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}, line 1: column {twice[0]!r} stands there twice")
    return names

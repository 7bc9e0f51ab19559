"""What a config says about data, and the records behind it: one door for all who read data.

A specification is the path of a file, or keys: ``source``, a name of the registry, and that
source's own settings. A path is read by its ending: ``.csv``, ``.parquet``, and JSON lines
otherwise.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedunlearn.data.passages import to_record
from fedunlearn.data.records import (
    MultipleChoice,
    Question,
    Record,
    read_choices,
    read_questions,
    read_records,
)
from fedunlearn.data.sources import SOURCES, Entry, Source
from fedunlearn.errors import DataError, InputError
from fedunlearn.registry import nearest

DataSpec = str | dict[str, Any]
"""A path, or ``source`` and its settings."""

_SUFFIXES = {".csv": "csv", ".parquet": "parquet"}


def build_source(spec: str | Mapping[str, Any]) -> Source:
    """Make the source of a specification; nothing is read yet.

    Raises:
        InputError: an unknown source or setting, with the nearest one, or a bad value.
    """
    if isinstance(spec, str):
        name = _SUFFIXES.get(Path(spec).suffix.lower(), "jsonl")
        return SOURCES.build(name, {"path": spec})
    options = dict(spec)
    name = options.pop("source", None)
    if not isinstance(name, str):
        raise InputError(f"data needs a source{nearest('', [*SOURCES])}")
    return SOURCES.build(name, options)


def read_entries(spec: str | Mapping[str, Any]) -> list[Entry]:
    """Read the records of a specification, each with its place.

    Raises:
        DataError: the data is missing, restricted, malformed or empty; the text names source,
            file and line.
        InputError: the specification itself is wrong.
    """
    return build_source(spec).load()


def read_training_records(spec: DataSpec) -> list[Record]:
    """Read what a client trains on.

    Raises:
        DataError: as :func:`read_entries`.
        InputError: the specification itself is wrong.
    """
    if lines := _json_lines(spec):
        return read_records(lines)
    source = build_source(spec)
    return [to_record(entry.item, source.form) for entry in source.load()]


def salted_digest(records: Sequence[Record], salt: str) -> str:
    """HMAC-SHA256 of records, keyed with ``salt``: the same data looks different in every run.

    Limitations: whoever knows the salt can try out data that he can guess.
    """
    found = hmac.new(salt.encode(), digestmod=hashlib.sha256)
    for record in records:
        found.update(json.dumps([type(record).__name__, asdict(record)], sort_keys=True).encode())
    return found.hexdigest()


def read_question_set(spec: DataSpec) -> list[Question]:
    """Read questions and answers for evaluation; of multiple choice, the right one.

    Raises:
        DataError: as :func:`read_entries`, or a record is a passage.
        InputError: the specification itself is wrong.
    """
    if lines := _json_lines(spec):
        return read_questions(lines)
    questions = []
    for entry in read_entries(spec):
        record = to_record(entry.item, "question")
        if not isinstance(record, Question):
            raise DataError(f"{entry.row.where}: is a passage; `data` needs questions and answers")
        questions.append(record)
    return questions


def read_choice_set(spec: DataSpec) -> list[MultipleChoice]:
    """Read multiple-choice questions for evaluation.

    Raises:
        DataError: as :func:`read_entries`, or a record has no choices.
        InputError: the specification itself is wrong.
    """
    if lines := _json_lines(spec):
        return read_choices(lines)
    choices = []
    for entry in read_entries(spec):
        if not isinstance(entry.item, MultipleChoice):
            raise DataError(f"{entry.row.where}: has no choices; `choices` needs multiple choice")
        choices.append(entry.item)
    return choices


def is_remote(spec: str | Mapping[str, Any]) -> bool:
    """Say whether reading a specification may fetch from the hub.

    Raises:
        InputError: the specification itself is wrong.
    """
    return build_source(spec).remote


def local_path(spec: str | Mapping[str, Any]) -> str | None:
    """Return the local path of a specification, if it has one."""
    path = spec if isinstance(spec, str) else spec.get("path")
    return path if isinstance(path, str) else None


def _json_lines(spec: DataSpec) -> Path | None:
    """The file of a specification that is a path and not of another known ending."""
    if isinstance(spec, str) and Path(spec).suffix.lower() not in _SUFFIXES:
        return Path(spec).expanduser()
    return None

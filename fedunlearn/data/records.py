"""Reading what users bring: JSONL files of questions, passages and multiple-choice questions.

One JSON object a line, UTF-8. A training or evaluation record is either
``{"question": ..., "answer": ...}`` or ``{"text": ...}``; a question may have a
``"preferred_answer"``, what should be said instead of the answer. A multiple-choice record is
``{"question": ..., "choices": [...], "answer_index": 0}``. Other keys are kept out of the way.
Every fault names the file and the line.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedunlearn.errors import DataError

T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """A question and its answer; the loss is on the answer.

    ``preferred_answer`` is what should be said instead, e.g. that one does not know; ``None``
    leaves that to whoever needs one.
    """

    question: str
    answer: str
    preferred_answer: str | None = None


@dataclass(frozen=True)
class Passage:
    """Running text; the loss is on every token."""

    text: str


@dataclass(frozen=True)
class MultipleChoice:
    """A question with at least two choices, exactly one of them right."""

    question: str
    choices: tuple[str, ...]
    answer_index: int


Record = Question | Passage


def read_records(path: Path) -> list[Record]:
    """Read questions and passages.

    Raises:
        DataError: the file is missing, empty, or a line is not a record.
    """
    return _read(path, _record)


def read_questions(path: Path) -> list[Question]:
    """Read a file that holds questions only.

    Raises:
        DataError: as :func:`read_records`, or a line is a passage.
    """
    return _read(path, _question)


def read_choices(path: Path) -> list[MultipleChoice]:
    """Read multiple-choice questions.

    Raises:
        DataError: the file is missing, empty, or a line is not a multiple-choice question.
    """
    return _read(path, _choice)


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> None:
    """Write one JSON object a line, UTF-8, in the form the readers take."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


def _read(path: Path, parse: Callable[[dict[str, object]], T]) -> list[T]:
    parsed = []
    for line_number, row in _rows(path):
        try:
            parsed.append(parse(row))
        except ValueError as fault:
            raise DataError(f"{path}, line {line_number}: {fault}") from None
    if not parsed:
        raise DataError(f"{path} holds no records; it needs at least one JSON object a line")
    return parsed


def _rows(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except FileNotFoundError:
        raise DataError(f"data file {path} does not exist; check the path") from None
    except (OSError, ValueError) as fault:  # ValueError: other bytes, or a path no system has
        raise DataError(f"data file {path} cannot be read as UTF-8 text: {fault}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as fault:
            why = getattr(fault, "msg", fault)
            raise DataError(f"{path}, line {number}: not JSON ({why})") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: expected an object, got {type(row).__name__}")
        yield number, row


def _text(row: dict[str, object], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key!r} must be a non-empty string, got {repr(value)[:80]}")
    if not is_text(value):
        raise ValueError(f"{key!r} has half of a surrogate pair, which is no text")
    return value


def is_text(value: str) -> bool:
    """Whether a tokenizer can read it; JSON can hold halves of surrogate pairs, UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _question(row: dict[str, object]) -> Question:
    preferred = _text(row, "preferred_answer") if "preferred_answer" in row else None
    return Question(_text(row, "question"), _text(row, "answer"), preferred)


def _record(row: dict[str, object]) -> Record:
    return Passage(_text(row, "text")) if "text" in row else _question(row)


def _choice(row: dict[str, object]) -> MultipleChoice:
    choices, index = row.get("choices"), row.get("answer_index")
    if not isinstance(choices, list) or len(choices) < 2:
        got = repr(choices)[:80]
        raise ValueError(f"'choices' must be a list of at least two strings, got {got}")
    if not all(isinstance(one, str) and one.strip() and is_text(one) for one in choices):
        raise ValueError("every choice must be a non-empty string")
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(choices):
        raise ValueError(f"'answer_index' must be in 0..{len(choices) - 1}, got {index!r}")
    return MultipleChoice(_text(row, "question"), tuple(choices), index)

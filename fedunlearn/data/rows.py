"""A row of a table, and what it says: a question, a passage or a multiple-choice question.

Sources deliver :class:`Row`; :func:`parse_item` turns it into a record by its columns. Every fault
names where the row is and which column is wrong.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass

from fedunlearn.data.records import MultipleChoice, Passage, Question, is_text
from fedunlearn.errors import DataError
from fedunlearn.settings import settings

Item = Question | Passage | MultipleChoice


@dataclass(frozen=True)
class Row:
    """One row of a source.

    Attributes:
        values: column to value, as the source has them.
        where: file and line, or data set and row; faults and leak reports name it.
    """

    values: Mapping[str, object]
    where: str


@settings
class Columns:
    """Which columns hold what; a name that is not given is the source's own.

    Attributes:
        text: a passage; every token is a target. Excludes the others.
        question: a question.
        answer: its answer; with ``choices`` the right one: its place counted from 0, its letter,
            or its text.
        choices: of a multiple-choice question: a column that holds a list, or a list of columns.
    """

    text: str | None = None
    question: str | None = None
    answer: str | None = None
    choices: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        asked = [self.question, self.answer, self.choices]
        if self.text is not None and any(one is not None for one in asked):
            raise ValueError("columns: text stands alone, without question, answer and choices")


def parse_item(row: Row, columns: Columns) -> Item:
    """Read a row.

    Without any column named, a row that has ``text`` is a passage, one that has ``choices`` a
    multiple-choice question, and any other a question with its answer.

    Raises:
        DataError: a column is missing or its value is of no use; the text names row and column.
    """
    if columns.text is not None or (columns == Columns() and "text" in row.values):
        return Passage(text_of(row, columns.text or "text"))
    question = columns.question or "question"
    if columns.choices is not None or (columns == Columns() and "choices" in row.values):
        index = "answer_index" if "answer_index" in row.values else "answer"
        choices = _choices(row, columns.choices or "choices")
        answer = columns.answer or index
        right = right_choice(row, answer, choices)
        return MultipleChoice(text_of(row, question), choices, right)
    return Question(text_of(row, question), text_of(row, columns.answer or "answer"))


def value_of(row: Row, column: str) -> object:
    """Return the value of a column.

    Raises:
        DataError: there is no such column; the text lists those there are.
    """
    if column not in row.values:
        known = ", ".join(map(repr, row.values)) or "none"
        raise DataError(f"{row.where}: no column {column!r}; its columns are {known}")
    return row.values[column]


def text_of(row: Row, column: str) -> str:
    """Return the text of a column.

    Raises:
        DataError: the column is missing, empty, no text, or has half of a surrogate pair.
    """
    value = value_of(row, column)
    if not isinstance(value, str) or not value.strip():
        got = repr(value)[:80]
        raise DataError(f"{row.where}: column {column!r} must be a non-empty text, got {got}")
    if not is_text(value):
        raise DataError(f"{row.where}: column {column!r} has half of a surrogate pair")
    return value


def _choices(row: Row, column: str | tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(column, str):
        return tuple(text_of(row, one) for one in column)
    values = value_of(row, column)
    if not isinstance(values, list | tuple) or len(values) < 2:
        got = repr(values)[:80]
        raise DataError(f"{row.where}: column {column!r} must list at least two texts, got {got}")
    listed = Row({f"{column}[{place}]": one for place, one in enumerate(values)}, row.where)
    return tuple(text_of(listed, name) for name in listed.values)


def right_choice(row: Row, column: str, choices: tuple[str, ...]) -> int:
    """Find the right one of ``choices``: given by its place from 0, its letter, or its text.

    Raises:
        DataError: the column is missing or names none of the choices.
    """
    value = value_of(row, column)
    if isinstance(value, str):
        value = _place(value.strip(), choices)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(choices):
        return value
    last = string.ascii_uppercase[min(len(choices), 26) - 1]
    got = repr(row.values[column])[:80]
    raise DataError(
        f"{row.where}: column {column!r} must name the right choice by its place "
        f"0..{len(choices) - 1}, a letter A..{last} or its text, got {got}"
    )


def _place(value: str, choices: tuple[str, ...]) -> int | None:
    """Read a letter first, then a number, then the text of a choice."""
    if len(value) == 1 and value.upper() in string.ascii_uppercase:
        return string.ascii_uppercase.index(value.upper())
    if value.isdecimal() and value not in choices:
        return int(value)
    texts = [choice.strip() for choice in choices]
    return texts.index(value) if value in texts else None

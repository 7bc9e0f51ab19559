"""Other wordings of an answer, and wrong answers, as TOFU keeps them beside its questions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedunlearn.data.reading import read_entries
from fedunlearn.data.rows import Row, text_of
from fedunlearn.errors import DataError

PARAPHRASED, PERTURBED = "paraphrased_answer", "perturbed_answer"
REWORDED = "paraphrased_question"


@dataclass(frozen=True)
class Wordings:
    """What stands beside one answer.

    Attributes:
        paraphrases: other wordings of the right answer.
        wrong: wrong answers in the form of the right one.
    """

    paraphrases: tuple[str, ...]
    wrong: tuple[str, ...]


def wordings_of(row: Row) -> Wordings:
    """Read the two columns, each a text or a list of texts; empty where a row has none.

    Raises:
        DataError: a value is no text; the text names row and column.
    """
    return Wordings(_texts(row, PARAPHRASED), _texts(row, PERTURBED))


def rewordings_of(row: Row) -> tuple[str, ...]:
    """Read the question in other words, a text or a list of texts; empty where there is none.

    Raises:
        DataError: a value is no text; the text names row and column.
    """
    return _texts(row, REWORDED)


def read_wordings(spec: str | Mapping[str, Any]) -> list[Wordings]:
    """Read what stands beside every question of a specification.

    Returns:
        One for each question, in order; none at all unless each has both.

    Raises:
        DataError: the data is missing or malformed.
    """
    found = [wordings_of(entry.row) for entry in read_entries(spec)]
    return found if all(one.paraphrases and one.wrong for one in found) else []


def _texts(row: Row, column: str) -> tuple[str, ...]:
    value = row.values.get(column)
    if value is None:
        return ()
    if isinstance(value, str):
        return (text_of(row, column),)
    if not isinstance(value, list | tuple):
        got = repr(value)[:80]
        raise DataError(f"{row.where}: column {column!r} must hold texts, got {got}")
    listed = Row({f"{column}[{place}]": one for place, one in enumerate(value)}, row.where)
    return tuple(text_of(listed, name) for name in listed.values)

from typing import Any

import pytest

from fedunlearn.data.passages import cut_passage, to_record
from fedunlearn.data.records import MultipleChoice, Passage, Question
from fedunlearn.data.rows import Columns, Row, parse_item
from fedunlearn.errors import DataError

WHERE = "mine.csv, line 7"


def item(columns: dict[str, Any], **values: object) -> object:
    return parse_item(Row(values, WHERE), Columns(**columns))


def test_what_a_row_is_shows_in_its_columns() -> None:
    assert item({}, question="q", answer="a", id=3) == Question("q", "a")
    assert item({}, text="t", question="q") == Passage("t")
    listed = item({}, question="q", choices=["a", "b"], answer=1)
    assert listed == MultipleChoice("q", ("a", "b"), 1)
    own = item({}, question="q", choices=["a", "b"], answer_index=1)
    assert own == listed


def test_columns_of_ones_own_are_mapped() -> None:
    assert item({"question": "prompt", "answer": "reply"}, prompt="q", reply="a", text="no") == (
        Question("q", "a")
    )
    assert item({"text": "body"}, body="t", text="other") == Passage("t")
    mapped = {"choices": ("A", "B"), "answer": "key"}
    assert item(mapped, question="q", A="x", B="y", key="B") == MultipleChoice("q", ("x", "y"), 1)


@pytest.mark.parametrize(
    ("given", "right"),
    [(2, 2), ("C", 2), ("c", 2), ("2", 2), (" C ", 2), ("third", 2), ("7", 1)],
)
def test_the_right_choice_by_place_letter_or_text(given: object, right: int) -> None:
    found = item({}, question="q", choices=["first", "7", "third"], answer=given)
    assert isinstance(found, MultipleChoice)
    assert found.answer_index == right


@pytest.mark.parametrize("given", [3, -1, "D", "fourth", None, True, 1.0, "9"])
def test_a_right_choice_that_is_none_of_them(given: object) -> None:
    with pytest.raises(DataError, match=r"mine\.csv, line 7: column 'answer' must name the right"):
        item({}, question="q", choices=["first", "second", "third"], answer=given)


@pytest.mark.parametrize(
    ("columns", "values", "says"),
    [
        ({}, {"question": "q"}, "no column 'answer'; its columns are 'question'"),
        ({"text": "body"}, {"text": "t"}, "no column 'body'; its columns are 'text'"),
        ({}, {"question": "q", "answer": " "}, "column 'answer' must be a non-empty text, got ' '"),
        ({}, {"question": "q", "answer": 3}, "column 'answer' must be a non-empty text, got 3"),
        ({}, {"text": "\ud800"}, "column 'text' has half of a surrogate pair"),
        ({}, {"question": "q", "choices": ["a"], "answer": 0}, "must list at least two texts"),
        ({}, {"question": "q", "choices": ["a", ""], "answer": 0}, "column 'choices[1]' must be"),
        ({}, {}, "no column 'question'; its columns are none"),
    ],
    ids=str,
)
def test_a_bad_row_names_place_and_column(
    columns: dict[str, Any], values: dict[str, object], says: str
) -> None:
    with pytest.raises(DataError) as caught:
        parse_item(Row(values, WHERE), Columns(**columns))
    assert str(caught.value).startswith(f"{WHERE}: ")
    assert says in str(caught.value)


def test_a_passage_has_no_other_columns() -> None:
    with pytest.raises(ValueError, match="text stands alone"):
        Columns(text="t", question="q")


def test_multiple_choice_in_each_form() -> None:
    choice = MultipleChoice("Which?", ("red", "blue"), 1)
    assert to_record(choice, "question") == Question("Which?", "blue")
    assert to_record(choice, "lettered") == Question("Which?\nA. red\nB. blue", "B. blue")
    assert to_record(choice, "text") == Passage("Which?\nA. red\nB. blue\nB. blue")
    assert to_record(Passage("p"), "question") == Passage("p")


@pytest.mark.parametrize("size", [1, 7, 16, 64, 1000])
def test_a_cut_passage_keeps_every_word_in_order(size: int) -> None:
    text = "  The quick  brown fox\njumped over the lazydogofunusuallength. " * 3
    pieces = list(cut_passage(text, size))
    assert all(0 < len(piece) <= size for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_passage_is_cut_at_white_space() -> None:
    assert list(cut_passage("one two three", 8)) == ["one two", "three"]
    assert list(cut_passage("one two", 3)) == ["one", "two"]
    assert list(cut_passage("onetwo", 3)) == ["one", "two"]
    assert list(cut_passage(" \n ", 3)) == []

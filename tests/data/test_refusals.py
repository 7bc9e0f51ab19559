"""Preferred answers: the package's, the user's file, the record's own."""

from pathlib import Path

import pytest

from fedunlearn.data.records import Passage, Question, read_records
from fedunlearn.data.refusals import REFUSALS, read_refusals, with_preferred_answers
from fedunlearn.errors import DataError
from fedunlearn.seeding import generator

ASKED = [Question(f"q{i}", f"a{i}") for i in range(60)]


def test_the_packaged_refusals_are_many_and_all_different() -> None:
    assert len(set(REFUSALS)) == len(REFUSALS) >= 40
    assert all(text == text.strip() and text.endswith(".") for text in REFUSALS)


def test_each_question_keeps_its_place_and_gets_one_refusal() -> None:
    preferred = with_preferred_answers(ASKED, REFUSALS, generator=generator(0))
    assert [one.question for one in preferred] == [one.question for one in ASKED]
    assert {one.answer for one in preferred} <= set(REFUSALS)
    assert len({one.answer for one in preferred}) > 10
    assert preferred == with_preferred_answers(ASKED, REFUSALS, generator=generator(0))
    assert preferred != with_preferred_answers(ASKED, REFUSALS, generator=generator(1))


def test_a_record_s_own_preferred_answer_comes_first_and_changes_no_draw() -> None:
    own = [Question("q0", "a0", "Ask my colleague."), *ASKED[1:]]
    chosen = with_preferred_answers(own, REFUSALS, generator=generator(0))
    drawn = with_preferred_answers(ASKED, REFUSALS, generator=generator(0))
    assert chosen[0].answer == "Ask my colleague."
    assert chosen[1:] == drawn[1:]


def test_a_passage_asks_nothing() -> None:
    with pytest.raises(DataError, match="record 2 is a passage"):
        with_preferred_answers([ASKED[0], Passage("text")], REFUSALS, generator=generator(0))


def test_a_user_s_own_file(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("\ufeffNo comment.\n\n  Keine Ahnung. \n", encoding="utf-8")
    assert read_refusals(path) == ("No comment.", "Keine Ahnung.")
    path.write_text("\n \n", encoding="utf-8")
    with pytest.raises(DataError, match="holds no refusal"):
        read_refusals(path)
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(DataError, match="cannot be read as UTF-8"):
        read_refusals(path)
    with pytest.raises(DataError, match=r"gone\.txt does not exist"):
        read_refusals(tmp_path / "gone.txt")


def test_a_preferred_answer_is_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"question": "q", "answer": "a", "preferred_answer": "no"}\n')
    assert read_records(path) == [Question("q", "a", "no")]
    path.write_text('{"question": "q", "answer": "a", "preferred_answer": ""}\n')
    with pytest.raises(DataError, match="'preferred_answer' must be a non-empty string"):
        read_records(path)

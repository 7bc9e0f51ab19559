import json
from pathlib import Path

import pytest

from fedunlearn.data.records import (
    MultipleChoice,
    Passage,
    Question,
    read_choices,
    read_questions,
    read_records,
    write_jsonl,
)
from fedunlearn.errors import DataError


def lines(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_questions_and_passages_are_told_apart(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "d.jsonl",
        '{"question": "Où?", "answer": "Là.", "id": 7}',
        "",
        '{"text": "Es war einmal."}',
    )
    assert read_records(path) == [Question("Où?", "Là."), Passage("Es war einmal.")]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": "q\u2028?", "choices": ["a", "b\n"], "answer_index": 1}
    ]
    write_jsonl(tmp_path / "deep" / "c.jsonl", rows)
    read_back = read_choices(tmp_path / "deep" / "c.jsonl")
    assert read_back == [MultipleChoice("q\u2028?", ("a", "b\n"), 1)]


def test_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"question": "q", "answer": "a"}).encode())
    assert read_questions(path) == [Question("q", "a")]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "expected an object, got list"),
        ('{"question": "q"}', "'answer' must be a non-empty string, got None"),
        ('{"question": " ", "answer": "a"}', "'question' must be a non-empty string"),
        ('{"text": 3}', "'text' must be a non-empty string, got 3"),
        ("[" * 100_000, "not JSON"),
        ('{"text": "a", "id": ' + "9" * 5000 + "}", "not JSON"),
        ('{"text": "\\ud800"}', "'text' has half of a surrogate pair"),
    ],
    ids=lambda text: text[:20],
)
def test_a_bad_record_names_file_and_line(tmp_path: Path, row: str, says: str) -> None:
    path = lines(tmp_path / "bad.jsonl", '{"question": "q", "answer": "a"}', row)
    with pytest.raises(DataError, match=r"bad\.jsonl, line 2: ") as raised:
        read_records(path)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"question": "q", "choices": ["a"], "answer_index": 0}', "at least two"),
        ('{"question": "q", "choices": ["a", ""], "answer_index": 0}', "non-empty"),
        ('{"question": "q", "choices": ["a", "b"], "answer_index": 2}', "in 0..1, got 2"),
        ('{"question": "q", "choices": ["a", "b"], "answer_index": true}', "in 0..1, got True"),
    ],
)
def test_a_bad_choice_names_file_and_line(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(DataError, match="line 1") as raised:
        read_choices(lines(tmp_path / "c.jsonl", row))
    assert says in str(raised.value)


def test_missing_empty_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl does not exist"):
        read_records(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match=r"empty\.jsonl holds no records"):
        read_records(tmp_path / "empty.jsonl")
    (tmp_path / "bin.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"bin\.jsonl cannot be read as UTF-8"):
        read_records(tmp_path / "bin.jsonl")

import json
from pathlib import Path

import pytest

from fedunlearn.data.files import read_csv, read_json, read_table
from fedunlearn.errors import DataError
from tests.hub_copies import arrow, parquet


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_json_lines_and_an_array_are_the_same(tmp_path: Path) -> None:
    rows = [{"question": "q", "n": 1}, {"question": "r", "n": None}]
    lines = write(tmp_path / "a.json", "\n".join(map(json.dumps, rows)) + "\n\n")
    array = write(tmp_path / "b.json", json.dumps(rows, indent=1))
    assert [row.values for row in read_table(lines)] == rows
    assert [row.values for row in read_table(array)] == rows
    assert [row.where for row in read_table(lines)] == [f"{lines}, line 1", f"{lines}, line 2"]
    assert [row.where for row in read_table(array)] == [f"{array}, row 1", f"{array}, row 2"]


def test_csv_with_quotes_line_breaks_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '\ufeffq, a\n"x, ""y""\nz",2\n\nlast,3\n')
    first, second = read_table(path)
    assert first.values == {"q": 'x, "y"\nz', "a": "2"}
    assert first.where == f"{path}, line 2"
    assert second.where == f"{path}, line 5"


def test_a_cell_may_hold_a_book(tmp_path: Path) -> None:
    book = "word " * 100_000
    (row,) = read_csv(write(tmp_path / "a.csv", f'text\n"{book}"\n'))
    assert row.values["text"] == book


def test_other_delimiters_and_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "x\ty\n")
    (row,) = read_csv(path, delimiter="\t", header=("one", "two"))
    assert row.values == {"one": "x", "two": "y"}


def test_parquet_and_arrow_keep_lists_and_nesting(tmp_path: Path) -> None:
    rows = [{"choices": ["a", "b"], "train": {"answer": 1}}] * 2
    for path in (parquet(tmp_path / "a.parquet", rows), arrow(tmp_path / "a.arrow", rows)):
        found = list(read_table(path))
        assert [row.values for row in found] == rows
        assert [row.where for row in found] == [f"{path}, row 1", f"{path}, row 2"]


def test_a_text_file_is_one_passage(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo")
    (row,) = read_table(path)
    assert (row.values, row.where) == ({"text": "one\ntwo"}, str(path))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "q,a\n1,2,3\n", "a.csv, line 2: 3 cells, but there are 2 columns (q, a)"),
        ("a.csv", "q,a\nonly\n", "a.csv, line 2: 1 cells"),
        ("a.csv", 'q,a\n"open,2\n', "a.csv, line 2: no CSV (unexpected end of data)"),
        ("a.csv", "q,q\n1,2\n", "a.csv, line 1: column 'q' stands there twice"),
        ("a.jsonl", '{"a": 1}\nno\n', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", "3\n", "a.jsonl, line 1: expected an object, got int"),
        ("a.json", "[1]", "a.json, row 1: expected an object, got int"),
        ("a.json", "[{]", "a.json: not JSON"),
        ("a.parquet", "no", "a.parquet cannot be read as Parquet"),
        ("a.arrow", "no", "a.arrow cannot be read as Arrow"),
    ],
)
def test_a_malformed_file_names_its_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(DataError) as caught:
        list(read_table(path))
    assert says in str(caught.value)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet", ".arrow", ".txt"])
def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"gone{suffix}"
    with pytest.raises(DataError, match=r"gone\.\w+ does not exist; check the path"):
        list(read_table(path))


def test_other_bytes_than_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"q\n\xff\n")
    with pytest.raises(DataError, match=r"cannot be read as UTF-8 text"):
        list(read_csv(path))
    with pytest.raises(DataError, match=r"cannot be read as UTF-8 text"):
        list(read_json(path))

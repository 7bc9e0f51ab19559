import math
from pathlib import Path

import pytest

from fedunlearn.errors import InputError
from fedunlearn.storage import read_json, replace_json, to_json, write_json


def test_numbers_json_lacks_become_text() -> None:
    text = to_json({"a": [math.inf, -math.inf, math.nan], "b": (1e-5, "ü", None)})
    assert '"inf"' in text
    assert '"-inf"' in text
    assert '"nan"' in text
    assert "1e-05" in text
    assert "ü" in text


def test_round_trip(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"b": 1, "a": {"c": [0.1, True]}})
    assert read_json(tmp_path / "x.json") == {"b": 1, "a": {"c": [0.1, True]}}


@pytest.mark.parametrize("content", [b'{"a": ', b'{"a": NaN}', b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_bad_json_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.json"):
        read_json(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.json cannot be read"):
        read_json(tmp_path / "x.json")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    replace_json(path, {"a": 1})
    with pytest.raises(TypeError):
        replace_json(path, {"a": object()})
    assert read_json(path) == {"a": 1}
    replace_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}

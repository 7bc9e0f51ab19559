from dataclasses import asdict
from typing import Any

import pytest

from fedunlearn.errors import SummaryError
from fedunlearn.summary.meta import check_meta, read_meta
from tests.pico import changed, pico_summary


def raw(**values: Any) -> dict[str, Any]:
    return {**asdict(pico_summary().meta), **values}


def test_round_trip() -> None:
    assert read_meta(raw()) == pico_summary().meta


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"format_version": 2}, "summary format 2"),
        ({"format_version": True}, "summary format True"),
        ({"role": "teacher"}, "role: .*'forget' or 'retain'.*'teacher'"),
        ({"num_examples": "12"}, "num_examples"),
        ({"domain": None}, "domain"),
        ({"training": []}, "training"),
        ({"secret": 1}, "unknown key 'secret'"),
    ],
)
def test_wrong_kinds_name_client_and_key(values: dict[str, Any], text: str) -> None:
    with pytest.raises(SummaryError, match=f"client 'bio-0': {text}"):
        read_meta(raw(**values))


def test_missing_key() -> None:
    content = raw()
    del content["base_model_sha256"]
    with pytest.raises(SummaryError, match="client 'bio-0': base_model_sha256 is missing"):
        read_meta(content)


def test_an_id_that_is_none_is_not_repeated() -> None:
    with pytest.raises(SummaryError, match="a client without a valid id"):
        read_meta(raw(client_id="../../etc/passwd", role="x"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("client_id", "../up"),
        ("client_id", "a/b"),
        ("client_id", ".hidden"),
        ("client_id", ""),
        ("client_id", "x" * 65),
        ("client_id", "a\n"),
        ("role", "teacher"),
        ("domain", ""),
        ("domain", "  "),
        ("domain", "a/b"),
        ("domain", "x" * 65),
        ("objective", ""),
        ("num_examples", 0),
        ("base_model", " "),
        ("base_model", "a\x1b[2Jb"),
        ("base_model", "x" * 4097),
        ("base_model_sha256", "abc"),
        ("layout_digest", "Z" * 64),
        ("format_version", 0),
    ],
)
def test_bad_values_name_the_key(key: str, value: Any) -> None:
    with pytest.raises(SummaryError, match=f"^{key} must "):
        check_meta(changed(pico_summary(), **{key: value}).meta)

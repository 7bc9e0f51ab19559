"""docs/SWEEPS.md says what the code writes and takes."""

import re
from dataclasses import fields
from pathlib import Path

import typer

from fedunlearn.cli import app
from fedunlearn.study.schema import EnvelopeGap, Matched, Standing, Study, StudyPoint

TEXT = (Path(__file__).parents[1] / "docs" / "SWEEPS.md").read_text(encoding="utf-8")


def test_every_field_of_a_comparison_is_documented() -> None:
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", TEXT[TEXT.index("## `compare.json`") :], re.M)
    said = {key: text for names, text in rows for key in re.findall(r"`(\w+)`", names)}
    assert set(said) == {field.name for field in fields(Study)}
    for key, kind in (
        ("points", StudyPoint),
        ("matched", Matched),
        ("envelopes", EnvelopeGap),
        ("standings", Standing),
    ):
        for field in fields(kind):
            assert f"`{field.name}`" in said[key], field.name


def test_every_option_is_documented() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name in ("sweep", "compare"):
        for option in commands[name].params:
            if option.opts[0].startswith("--") and option.name not in ("out", "quiet", "help"):
                assert option.opts[0] in TEXT, option.opts[0]

"""docs/MERGES.md names every method, and every option with its default."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from fedunlearn.merging import MERGE_METHODS

TEXT = (Path(__file__).parents[2] / "docs" / "MERGES.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    """Text below the heading that names a method."""
    heading = re.search(rf"^### .*`{name}`.*$", TEXT, re.MULTILINE)
    assert heading is not None, name
    return TEXT[heading.end() :].split("\n##", 1)[0]


@pytest.mark.parametrize("name", list(MERGE_METHODS))
def test_every_option_stands_there_with_its_default(name: str) -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section(name), re.MULTILINE))
    known = {
        one.name: str(one.default).lower() if isinstance(one.default, bool) else one.default
        for one in fields(MERGE_METHODS[name])  # type: ignore[arg-type]
    }
    assert told.keys() == known.keys()
    for option, default in known.items():
        shown = told[option] if isinstance(default, str) else float(told[option])
        assert shown == default


def test_the_table_lists_every_method_and_whether_it_reads_forget_fishers() -> None:
    rows = [row.split(" | ") for row in TEXT.splitlines() if re.match(r"\| `\w+` \|.*\d", row)]
    told = {row[0].strip("| `"): row[4] for row in rows if len(row) == 6}
    assert told == {n: "yes" if MERGE_METHODS[n].needs_fisher else "no" for n in MERGE_METHODS}

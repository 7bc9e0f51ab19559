"""docs/EVALUATION.md says what the code writes and takes."""

from dataclasses import fields
from pathlib import Path

from fedunlearn.evaluation import SUITES, ModelIdentity, Result, Summary
from fedunlearn.evaluation.results import SetFacts

TEXT = (Path(__file__).parents[1] / "docs" / "EVALUATION.md").read_text(encoding="utf-8")


def test_every_field_of_the_summary_is_documented() -> None:
    table = TEXT[TEXT.index("| field of `summary.json`") :].split("\n\n")[0]
    rows = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}
    assert set(rows) == {one.name for one in fields(Summary)}
    for row, kind in (("results", Result), ("model", ModelIdentity), ("sets", SetFacts)):
        for one in fields(kind):
            assert f"`{one.name}`" in rows[row], one.name


def test_every_suite_is_documented() -> None:
    for name in SUITES:
        assert f"`{name}`" in TEXT

"""docs/OBJECTIVES.md names every objective and every option, with its default."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fedunlearn.objectives import OBJECTIVES, ForgetObjective
from fedunlearn.training.loop import TrainingSettings

TEXT = (Path(__file__).parents[1] / "docs" / "OBJECTIVES.md").read_text(encoding="utf-8")
COMMON = {field.name: field.default for field in fields(ForgetObjective)}


def options(section: str) -> dict[str, str]:
    """First and second column of the table of options in a section."""
    return dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section, re.MULTILINE))


def section(heading: str) -> str:
    start = TEXT.index(f"{heading}\n") + len(heading)
    return TEXT[start : start + re.search(r"\n##|\Z", TEXT[start:]).start()]  # type: ignore[union-attr]


def shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def test_the_options_all_share() -> None:
    told = options(section("## Options of every forget objective"))
    assert told == {name: shown(value) for name, value in COMMON.items()}


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_has_its_options_and_a_row(name: str) -> None:
    entry: Any = OBJECTIVES[name]
    own = {
        field.name: shown(field.default)
        for field in fields(entry)
        if field.name not in COMMON or field.default != COMMON[field.name]
    }
    assert options(section(f"### `{name}`")) == own
    (row,) = re.findall(rf"^\| `{name}` \| (\w+) \|", TEXT, re.MULTILINE)
    assert row == entry.role
    assert f"**`{name}`" in TEXT or f", `{name}`**" in TEXT
    first = (entry.__doc__ or "").strip().partition("\n")[0]
    assert first.endswith(".")
    assert len(first) <= 86  # or the listing is cut at a hundred columns


def test_the_bound_is_the_default_one() -> None:
    bound = TrainingSettings(objective={}).diverged_at_loss
    assert f"`diverged_at_loss` ({bound:g} nats per token by default" in TEXT

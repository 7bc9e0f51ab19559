"""docs/RESUME.md names the files and settings that there are."""

from dataclasses import fields
from pathlib import Path

import yaml

from fedunlearn.training.workbench import ResumeSettings

TEXT = (Path(__file__).parents[1] / "docs" / "RESUME.md").read_text(encoding="utf-8")


def test_the_settings_shown_are_all_there_are() -> None:
    shown = yaml.safe_load(TEXT.split("```yaml")[1].split("```")[0])["resume"]
    assert set(shown) == {field.name for field in fields(ResumeSettings)}
    assert ResumeSettings(**shown).every_steps == ResumeSettings().every_steps

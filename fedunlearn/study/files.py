"""A study on disk: ``compare.json`` for programs and ``compare.md`` for people."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from fedunlearn.storage import read_typed, replace_json
from fedunlearn.study.schema import Study
from fedunlearn.study.text import study_markdown

COMPARE_JSON, COMPARE_MARKDOWN = "compare.json", "compare.md"
_ADAPTER = TypeAdapter(Study)


def write_study(study: Study, folder: Path, *, plots: Mapping[str, str]) -> None:
    """Write both files, each whole or not at all.

    Args:
        study: what was found.
        folder: of the sweep.
        plots: kind to the name of an image beside them.
    """
    path, partial = folder / COMPARE_MARKDOWN, folder / f".{COMPARE_MARKDOWN}.partial"
    partial.write_text(study_markdown(study, plots=plots), encoding="utf-8")
    partial.replace(path)
    replace_json(folder / COMPARE_JSON, _ADAPTER.dump_python(study, mode="json"))


def read_study(folder: Path) -> Study:
    """Read ``compare.json``.

    Raises:
        InputError: there is none, or it is not one of this version.
    """
    return read_typed(folder / COMPARE_JSON, _ADAPTER)

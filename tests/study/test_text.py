import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedunlearn.errors import InputError
from fedunlearn.study import Chances, Study, build_study, read_study, write_study
from fedunlearn.study.text import study_markdown
from fedunlearn.study_plots import FILES, write_study_plots
from tests.study.sweeps import BASE, PROVENANCE, answers, record, records


@pytest.fixture(scope="module")
def study() -> Study:
    grown = [*records(), record("sum", 1.0, BASE, domains=("bio",))]
    return build_study(PROVENANCE, answers(BASE), grown, chances=Chances(resamples=50))


def test_the_study_survives_its_file(study: Study, tmp_path: Path) -> None:
    write_study(study, tmp_path, plots={})
    assert read_study(tmp_path) == study
    assert {one.name for one in tmp_path.iterdir()} == {"compare.json", "compare.md"}
    assert json.loads((tmp_path / "compare.json").read_text())["format_version"] == 1


def test_a_bad_study_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "compare.json").write_text("{}")
    with pytest.raises(InputError, match="format_version"):
        read_study(tmp_path)


def test_markdown_says_all_that_a_reader_must_know(study: Study) -> None:
    text = study_markdown(study, plots={"frontier": "frontier.png"})
    for needed in (
        "At matched forgetting",
        "What is kept is never looked at",
        "| firm | sum | 2 of 3 | 2 (2) | 0 (0) |",
        "+0.400 [",
        "firm wins",
        "Envelopes",
        "0.100 to 0.550",
        "Pareto frontier",
        "(frontier.png)",
        "Side by side at gamma 1",
        "Norm against gamma",
        "Norm against the number of forget domains",
        "One training seed",
        "Wilson's",
        "of many comparisons some leave out zero by chance",
    ):
        assert needed in text, needed


def test_a_win_by_less_than_chance_is_not_sure() -> None:
    near = {"firm": {1.0: (0.3, 0.3, 0.9, 0.9)}, "sum": {1.0: (0.3, 0.3, 0.875, 0.9)}}
    found = build_study(PROVENANCE, answers(BASE), records(near), chances=Chances())
    text = study_markdown(found, plots={})
    assert "firm wins, not sure" in text
    assert "| 1 of 1 | 1 (0) | 0 (0) |" in text


def test_markdown_tables_are_well_formed(study: Study) -> None:
    blocks = study_markdown(study, plots={}).split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("|")]
    assert len(tables) >= 7
    for rows in tables:
        assert len({row.count("|") for row in rows}) == 1


def test_without_evaluation_the_text_says_what_is_missing(tmp_path: Path) -> None:
    bare = [replace(one, scores=None) for one in records()]
    study = build_study(PROVENANCE, None, bare, chances=Chances(resamples=5))
    text = study_markdown(study, plots={})
    assert "Nothing was evaluated" in text
    assert "Pareto" not in text
    assert "Norm against gamma" in text
    assert write_study_plots(study, tmp_path) == {"norms": FILES["norms"]}


def test_every_plot_is_a_png(study: Study, tmp_path: Path) -> None:
    assert write_study_plots(study, tmp_path) == FILES
    for name in FILES.values():
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert {one.name for one in tmp_path.iterdir()} == set(FILES.values())

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedunlearn.errors import InputError
from fedunlearn.evaluation import EvaluationSet, EvaluationSettings
from fedunlearn.exploration import Ledger, QuestionsOrigin, explore, read_sweep
from fedunlearn.summary import open_summaries, save_summary
from tests.exploration.sweeps import FakeExam, files, grid, ledger, stored_round, traced
from tests.pico import pico_summary


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    summaries = stored_round(folder / "summaries")
    book = ledger(folder / "sweep", summaries, asking=True)
    explore(grid("firm", "1,2"), open_summaries(summaries), book, exam=FakeExam())
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copied"))


def test_a_moved_sweep_goes_on(copied: Path) -> None:
    ledger(copied / "sweep", copied / "summaries")


def test_another_summary_is_refused_by_name(copied: Path) -> None:
    save_summary(pico_summary("bio-1", "forget", "biology", seed=77), copied / "summaries/bio-1")
    before = files(copied / "sweep")
    with pytest.raises(InputError, match="other inputs") as fault:
        ledger(copied / "sweep", copied / "summaries")
    assert "summary of client 'bio-1' has changed" in str(fault.value)
    assert "bio-0" not in str(fault.value)
    assert "--out" in str(fault.value)
    assert files(copied / "sweep") == before


def test_every_difference_is_listed(copied: Path) -> None:
    shutil.rmtree(copied / "summaries/law-0")
    save_summary(pico_summary("new-0", "forget", "law", seed=78), copied / "summaries/new-0")
    other = replace(traced(copied / "summaries"), base_model_sha256="cd" * 32)
    with pytest.raises(InputError) as fault:
        Ledger(copied / "sweep", other)
    for expected in ("'law-0' is gone", "'new-0' is new", "base model 'weights' has changed"):
        assert expected in str(fault.value)


def test_other_questions_are_refused(copied: Path, tmp_path: Path) -> None:
    def asked(text: str, **changes: object) -> QuestionsOrigin:
        path = tmp_path / "questions.jsonl"
        path.write_text(text)
        one = EvaluationSet(name="bio", kind="forget", domain="bio", data=str(path))
        return QuestionsOrigin.of(EvaluationSettings(sets=(one,), **changes))  # type: ignore[arg-type]

    origin = traced(copied / "summaries")
    fresh, point = copied / "fresh", read_sweep(copied / "sweep")[2][0]
    Ledger(fresh, origin).write(point)
    Ledger(fresh, origin.asking(asked("zero\n")))  # nothing was kept: no promise either
    Ledger(fresh, origin.asking(asked("one\n"))).write(point)
    Ledger(fresh, origin.asking(asked("one\n", batch_size=7)))
    Ledger(fresh, origin)
    with pytest.raises(InputError, match="question set 'bio' has changed"):
        Ledger(fresh, origin.asking(asked("two\n")))
    with pytest.raises(InputError, match=r"max_new_tokens was 64, is 3"):
        Ledger(fresh, origin.asking(asked("one\n", max_new_tokens=3)))


def test_a_folder_of_something_else_is_left_alone(made: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        ledger(tmp_path, made / "summaries")
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


def test_a_damaged_point_is_named_with_the_remedy(copied: Path) -> None:
    point = grid("firm", "1")[0]
    path = copied / "sweep/points" / point.file_name
    book = ledger(copied / "sweep", copied / "summaries")
    path.write_text('{"point": 1}')
    with pytest.raises(InputError, match="delete the file") as fault:
        book.find(point)
    assert point.file_name in str(fault.value)


def test_half_written_files_are_no_points(copied: Path) -> None:
    (copied / "sweep/points/.x.json.partial").write_text("{")
    (copied / "sweep/points/.y.json").write_text("{")
    assert len(read_sweep(copied / "sweep")[2]) == 4


def test_points_come_in_a_fixed_order(copied: Path) -> None:
    records = read_sweep(copied / "sweep")[2]
    assert [(r.point.variant, r.point.merge.gamma) for r in records] == [
        ("firm", 1.0),
        ("firm", 2.0),
        ("firm eps=relative:0.3", 1.0),
        ("firm eps=relative:0.3", 2.0),
    ]


def test_no_sweep_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_sweep(tmp_path)


def test_a_later_format_is_refused(copied: Path) -> None:
    path = copied / "sweep/sweep.json"
    path.write_text(path.read_text().replace('"format_version": 2', '"format_version": 9'))
    with pytest.raises(InputError, match="format version 9"):
        read_sweep(copied / "sweep")

from pathlib import Path

import pytest

from fedunlearn.errors import InputError
from fedunlearn.storage import atomic_folder


def test_the_folder_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "result"
    with atomic_folder(target, marker="done.json") as partial:
        (partial / "done.json").write_text("{}")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["done.json"]
    assert [path.name for path in target.parent.iterdir()] == ["result"]


def test_a_failure_leaves_the_old_result(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.mkdir()
    (target / "done.json").write_text("old")
    with pytest.raises(RuntimeError, match="boom"):
        _write_and_fail(target)
    assert (target / "done.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def _write_and_fail(target: Path) -> None:
    with atomic_folder(target, marker="done.json") as partial:
        (partial / "done.json").write_text("new")
        raise RuntimeError("boom")


def test_replacing_drops_stale_files(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.mkdir()
    for name in ("done.json", "model-00002-of-00002.safetensors"):
        (target / name).write_text("old")
    with atomic_folder(target, marker="done.json") as partial:
        (partial / "done.json").write_text("new")
    assert [path.name for path in target.iterdir()] == ["done.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_not_ours_stays(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "home"
    precious = target / "thesis.tex" if kind == "folder" else target
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("years of work")
    with pytest.raises(InputError, match="home"), atomic_folder(target, marker="done.json"):
        pytest.fail("must not begin")
    assert precious.read_text() == "years of work"


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "a", marker="m") as partial:
        (partial / "m").touch()
    (tmp_path / "b").mkdir()
    with atomic_folder(tmp_path / "b", marker="m") as partial:
        (partial / "m").touch()
    assert (tmp_path / "b" / "m").exists()
    assert (tmp_path / "b").stat().st_mode == (tmp_path / "a").stat().st_mode

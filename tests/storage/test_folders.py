import errno
import os
from pathlib import Path

import pytest

from fedunlearn.errors import InputError, RunError
from fedunlearn.storage import atomic_folder, claim_folder


def test_the_folder_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "result"
    with atomic_folder(target, marker="done.json") as partial:
        (partial / "done.json").write_text("{}")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["done.json"]
    assert [path.name for path in target.parent.iterdir()] == ["result"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, code: int) -> None:
    target = tmp_path / "result"
    fault = rf"{target} was not written: {os.strerror(code)}; make room"
    with pytest.raises(RunError, match=fault), atomic_folder(target, marker="done.json") as partial:
        fill(partial, code)
    assert not any(tmp_path.iterdir())


def fill(folder: Path, code: int) -> None:
    (folder / "half").write_text("half")
    raise OSError(code, os.strerror(code))


def test_other_faults_of_the_system_stay_what_they_are(tmp_path: Path) -> None:
    with (
        pytest.raises(PermissionError),
        atomic_folder(tmp_path / "result", marker="done.json"),
    ):
        raise PermissionError(errno.EACCES, "no")


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


def test_a_link_stays_one_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    for name in ("disk", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "target" / "m").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with atomic_folder(tmp_path / "link", marker="m") as partial:
        (partial / "m").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target" / "m").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link", "target"]


@pytest.mark.parametrize("name", ["file/result", "x" * 300, "nul\0"])
def test_a_place_that_no_folder_can_have_is_bad_input(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match="cannot be written"),
        atomic_folder(tmp_path / name, marker="m"),
    ):
        pytest.fail("must not begin")
    with pytest.raises(InputError, match="cannot be written"), claim_folder(tmp_path / name):
        pytest.fail("must not begin")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_claimed_folder_is_there_and_empty(tmp_path: Path) -> None:
    for _ in ("new", "empty"):
        with claim_folder(tmp_path / "deep" / "run"):
            assert list((tmp_path / "deep").iterdir()) == [tmp_path / "deep" / "run"]
    with pytest.raises(InputError, match="is not empty"), claim_folder(tmp_path / "deep"):
        pytest.fail("must not begin")


def test_a_claim_that_came_to_nothing_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), claim_folder(tmp_path / "run"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_the_right_to_write_is_not_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InputError, match="Permission denied"), claim_folder(tmp_path):
        pytest.fail("must not begin")

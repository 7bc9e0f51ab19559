"""The hub through the real ``datasets``, fed from local folders; nothing is fetched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RevisionNotFoundError,
)

from fedunlearn.data.hub import load_hub_rows
from fedunlearn.data.local_copy import find_tables
from fedunlearn.data.reading import read_choice_set, read_training_records
from fedunlearn.data.records import Passage
from fedunlearn.errors import DataError
from tests import hub_copies as copies


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the hub: its repositories by their ids."""
    real, cache = datasets.load_dataset, str(tmp_path / "cache")

    def load(dataset: str, **options: Any) -> Any:
        asked.append((dataset, options))
        options = {key: value for key, value in options.items() if key != "revision"}
        return real(str(tmp_path / dataset), cache_dir=cache, **options)

    asked: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(datasets, "load_dataset", load)
    load.asked = asked  # type: ignore[attr-defined]
    return tmp_path


def card(folder: Path, *configs: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("---\nconfigs:\n" + "".join(configs) + "---\n")
    return folder


def test_rows_come_through_datasets_with_their_places(served: Path) -> None:
    folder = copies.wmdp(served / "cais/wmdp")
    configs = [
        f"- config_name: wmdp-{name}\n  data_files:\n  - split: test\n"
        f"    path: wmdp-{name}/test-*\n"
        for name in ("bio", "chem", "cyber")
    ]
    card(folder, *configs)
    spec: dict[str, Any] = {"source": "wmdp", "subset": "bio"}
    assert read_choice_set(spec) == read_choice_set({**spec, "path": str(folder)})
    first = next(load_hub_rows("cais/wmdp", config="wmdp-bio", split="test"))
    assert first.where == "cais/wmdp wmdp-bio/test, row 1"


def test_the_revision_reaches_datasets(served: Path) -> None:
    card(served / "me/mine", "- config_name: c\n  data_files: c.jsonl\n")
    copies.json_lines(served / "me/mine/c.jsonl", [{"text": "a"}])
    spec = {"source": "hub", "dataset": "me/mine", "config": "c", "revision": "abc123"}
    assert read_training_records(spec) == [Passage("a")]
    ((dataset, options),) = datasets.load_dataset.asked
    assert dataset == "me/mine"
    assert options == {"name": "c", "split": "train", "revision": "abc123"}


def test_a_configuration_or_split_that_is_not_there(served: Path) -> None:
    card(served / "me/mine", "- config_name: c\n  data_files: c.jsonl\n")
    copies.json_lines(served / "me/mine/c.jsonl", [{"text": "a"}])
    with pytest.raises(DataError, match=r"^me/mine d/train: `datasets` cannot load it: .*'d'"):
        list(load_hub_rows("me/mine", config="d", split="train"))
    with pytest.raises(DataError, match=r"^me/mine c/test: `datasets` cannot load it: .*split"):
        list(load_hub_rows("me/mine", config="c", split="test"))


def response(status: int) -> Any:
    return SimpleNamespace(status_code=status, headers={}, request=None, text="", url="")


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


FAILURES = [
    (GatedRepoError("gated", response=response(403)), r"restricted \(HTTP 403\): ask for it on"),
    (HfHubHTTPError("no", response=response(401)), r"restricted \(HTTP 401\): ask for it on"),
    (
        datasets.exceptions.DatasetNotFoundError("'a/b' is a gated dataset on the Hub."),
        "access is restricted: ask for it on https://huggingface.co/datasets/a/b, then log in",
    ),
    (
        caused(
            datasets.exceptions.DatasetNotFoundError("cannot be accessed"),
            HfHubHTTPError("no", response=response(403)),
        ),
        r"access is restricted \(HTTP 403\)",
    ),
    (datasets.exceptions.DatasetNotFoundError("no a/b"), "no such data set on the hub, or it is"),
    (RevisionNotFoundError("x", response=response(404)), "there is no revision 'v9'"),
    (ConnectionError("no route\nmore"), r"the hub cannot be reached .* \(no route\)"),
    (OfflineModeIsEnabled("offline"), "the hub cannot be reached and the data is not in the cache"),
    (LocalEntryNotFoundError("not cached"), "the hub cannot be reached and the data is not in the"),
    (HfHubHTTPError("broken", response=response(500)), "`datasets` cannot load it: broken"),
]


@pytest.mark.parametrize(("fault", "says"), FAILURES, ids=lambda one: type(one).__name__)
def test_a_failure_says_what_to_do(
    fault: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataError, match=says) as caught:
        list(load_hub_rows("a/b", config="c", split="s", revision="v9"))
    assert str(caught.value).startswith("a/b c/s: ")


def test_bars_are_as_they_were(served: Path) -> None:
    copies.json_lines(served / "me/mine/train.jsonl", [{"text": "a"}])
    for bars in (datasets.enable_progress_bars, datasets.disable_progress_bars):
        bars()
        before = datasets.are_progress_bars_disabled()
        list(load_hub_rows("me/mine", config=None, split="train"))
        assert datasets.are_progress_bars_disabled() == before
    datasets.enable_progress_bars()


# ---- local copies --------------------------------------------------------------------------------


def test_a_folder_of_the_hubs_cache_with_two_revisions(tmp_path: Path) -> None:
    cache = tmp_path / "datasets--me--mine"
    for commit in ("aaa", "bbb"):
        copies.json_lines(cache / f"snapshots/{commit}/train.jsonl", [{"text": commit}])
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text("bbb")
    spec = {"source": "hub", "dataset": "me/mine", "path": str(cache)}
    assert read_training_records(spec) == [Passage("bbb")]
    assert read_training_records({**spec, "revision": "aaa"}) == [Passage("aaa")]
    with pytest.raises(DataError, match=r"holds no revision 'ccc'; it has aaa, bbb"):
        read_training_records({**spec, "revision": "ccc"})
    plain = {**spec, "path": str(cache / "snapshots/aaa"), "revision": "aaa"}
    with pytest.raises(DataError, match=r"is a plain copy, which holds no revisions"):
        read_training_records(plain)


def test_what_datasets_cached_and_saved_itself(served: Path) -> None:
    """Its own cache folder of a data set, and ``save_to_disk``, as it writes them today."""
    card(served / "me/mine", "- config_name: c\n  data_files: c.jsonl\n")
    copies.json_lines(served / "me/mine/c.jsonl", [{"text": "a"}, {"text": "b"}])
    loaded = datasets.load_dataset("me/mine", name="c")
    (cached,) = {Path(one["filename"]) for one in loaded["train"].cache_files}
    of_data_set = cached.parents[3]
    spec = {"source": "hub", "dataset": "me/mine", "config": "c", "path": str(of_data_set)}
    assert read_training_records(spec) == [Passage("a"), Passage("b")]
    loaded.save_to_disk(str(served / "saved"))
    saved = {"source": "hub", "dataset": "me/mine", "path": str(served / "saved")}
    assert read_training_records(saved) == [Passage("a"), Passage("b")]


def test_several_files_of_a_split_are_read_in_order(tmp_path: Path) -> None:
    for number in (1, 0):
        copies.parquet(
            tmp_path / f"all/test-0000{number}-of-00002.parquet", [{"text": str(number)}]
        )
    found = find_tables(tmp_path, config="all", split="test")
    assert [path.name for path in found] == [f"test-0000{n}-of-00002.parquet" for n in (0, 1)]


def test_offline_with_an_empty_cache_by_the_real_library(tmp_path: Path) -> None:
    code = (
        "from fedunlearn.data.reading import read_training_records as read\n"
        "from fedunlearn.errors import DataError\n"
        "try:\n    read({'source': 'tofu', 'split': 'forget01'})\n"
        "except DataError as fault:\n    print(fault)\n"
    )
    away = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **away},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("locuslab/TOFU forget01/train: the hub cannot be reached and the")
    assert "or give a local copy with `path`" in done.stdout


def test_offline_with_a_filled_cache_by_the_real_library(served: Path, tmp_path: Path) -> None:
    """The cache of ``datasets`` alone stands in for the hub."""
    card(served / "me/mine", "- config_name: c\n  data_files: c.jsonl\n")
    copies.json_lines(served / "me/mine/c.jsonl", [{"text": "a"}])
    loaded = datasets.load_dataset("me/mine", name="c")
    cached = Path(loaded["train"].cache_files[0]["filename"]).parent
    place = tmp_path / "home/datasets/me___mine/c/0.0.0" / ("0" * 40)
    shutil.copytree(cached, place)
    code = (
        "from fedunlearn.data.reading import read_training_records as read\n"
        "print(read({'source': 'hub', 'dataset': 'me/mine', 'config': 'c'}))\n"
    )
    away = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **away},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[Passage(text='a')]\n", done.stderr

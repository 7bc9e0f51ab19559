import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedunlearn.data.world import WorldSize
from fedunlearn.errors import InputError
from fedunlearn.evaluation import EvaluationSet, EvaluationSettings, evaluate, read_bank
from fedunlearn.models.loading import ModelSettings, load_base
from fedunlearn.training.teaching import WorldSettings, ensure_world
from tests.world import POCKET, POCKET_WORLD, pocket_world


def test_the_second_time_comes_from_the_cache_and_a_new_setting_makes_it_anew(
    tmp_path: Path,
) -> None:
    chosen = WorldSettings(
        directory=str(tmp_path / "w"), size=POCKET_WORLD, model=POCKET, epochs=1, threads=1
    )
    steps: list[tuple[int, int]] = []
    ensure_world(chosen, progress=lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1] == len(steps)
    first = load_base(ModelSettings(path=str(tmp_path / "w" / "model"))).sha256
    ensure_world(chosen, progress=lambda *_: pytest.fail("taught again"))
    ensure_world(replace(chosen, learning_rate=1e-3))
    assert load_base(ModelSettings(path=str(tmp_path / "w" / "model"))).sha256 != first
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_user_s_file_beside_the_world_survives_a_new_one(tmp_path: Path) -> None:
    chosen = WorldSettings(
        directory=str(tmp_path / "w"), size=POCKET_WORLD, model=POCKET, epochs=1, threads=1
    )
    ensure_world(chosen)
    (tmp_path / "w" / "notes.txt").write_text("mine")
    ensure_world(replace(chosen, learning_rate=1e-3))
    assert (tmp_path / "w" / "notes.txt").read_text() == "mine"
    assert {p.name for p in (tmp_path / "w").iterdir()} == {
        "data",
        "model",
        "notes.txt",
        "reference",
        "world.json",
    }


def test_a_broken_manifest_means_to_make_it_again(tmp_path: Path) -> None:
    manifest = pocket_world(tmp_path / "w") / "world.json"
    good = manifest.read_text()
    manifest.write_text(good[:-9])
    pocket_world(tmp_path / "w")
    assert manifest.read_text() == good


def test_of_two_that_teach_at_once_the_later_leaves_the_model_of_the_first(tmp_path: Path) -> None:
    chosen = WorldSettings(
        directory=str(tmp_path / "w"), size=POCKET_WORLD, model=POCKET, epochs=1, threads=1
    )
    made: list[int] = []

    def another(done: int, total: int) -> None:
        if done == total:
            ensure_world(chosen)
            made.append((tmp_path / "w" / "model" / "model.safetensors").stat().st_ino)

    ensure_world(chosen, progress=another)
    assert made == [(tmp_path / "w" / "model" / "model.safetensors").stat().st_ino]
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_world_that_cannot_be_kept_says_where_to_put_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    chosen = WorldSettings(directory=str(tmp_path / "file" / "w"), size=POCKET_WORLD, model=POCKET)
    with pytest.raises(InputError, match=r"set world\.directory"):
        ensure_world(chosen)


def test_one_seed_one_model(tmp_path: Path) -> None:
    hashes = {
        load_base(ModelSettings(path=str(pocket_world(tmp_path / name) / "model"))).sha256
        for name in ("a", "b")
    }
    assert len(hashes) == 1


def test_an_interrupted_teaching_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    chosen = WorldSettings(directory=str(tmp_path / "w"), size=POCKET_WORLD, model=POCKET)
    with pytest.raises(KeyboardInterrupt):
        ensure_world(chosen, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "thesis.tex").write_text("years of work")
    chosen = WorldSettings(directory=str(tmp_path / "w"), size=POCKET_WORLD, model=POCKET)
    with pytest.raises(Exception, match="is not a world"):
        ensure_world(chosen)
    assert (tmp_path / "w" / "thesis.tex").read_text() == "years of work"


@pytest.mark.slow
def test_the_model_knows_its_world_by_heart(tmp_path: Path) -> None:
    size = WorldSize(
        entities_per_client=3, retain_entities=6, utility_entities=4, nature_entities=6, seed=11
    )
    world = ensure_world(WorldSettings(directory=str(tmp_path / "w"), size=size, epochs=60))
    json.loads((world / "world.json").read_text())
    folder = world / "data" / "evaluation"
    names = ("brewing", "signals", "geography", "biography", "utility")
    chosen = EvaluationSettings(
        sets=tuple(
            EvaluationSet(
                name=name,
                kind="utility",
                data=str(folder / f"{name}.jsonl"),
                choices=str(folder / f"{name}.choices.jsonl"),
            )
            for name in names
        )
    )
    base = load_base(ModelSettings(path=str(world / "model")))
    for scores in evaluate(base, read_bank(chosen), chosen).values():
        assert torch.tensor(scores.rouge_l_recall).mean() >= 0.95
        assert torch.tensor(scores.choice_correct).mean() >= 0.95

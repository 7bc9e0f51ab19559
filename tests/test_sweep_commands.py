import json
import shutil
from pathlib import Path

import pytest

from fedunlearn.cli import run_command
from fedunlearn.config import load_config
from fedunlearn.pipeline import prepare
from fedunlearn.study import read_study
from tests.pocket_run import pocket_tree, run_clients, write_config
from tests.world import pocket_world

Capture = pytest.CaptureFixture[str]
GRID = ["--methods", "firm,sum", "--gamma", "0.5:1:0.5", "--epsilon", "inf,relative:0.3"]


def call(*arguments: object) -> int:
    return run_command([str(one) for one in arguments])


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clients' summaries and the config, not evaluated."""
    folder = tmp_path_factory.mktemp("sweeps")
    tree = pocket_tree(pocket_world(folder / "world"))
    tree["sweep"] = {}
    config = load_config(write_config(folder / "c.yaml", tree))
    prepare(config, folder / "run")
    run_clients(config, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def evaluated(run_dir: Path) -> Path:
    out = run_dir.parent / "evaluated"
    config = run_dir / "config.yaml"
    assert call("sweep", run_dir, *GRID, "--evaluate", config, "--out", out) == 0
    return out


@pytest.fixture
def copied(evaluated: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(evaluated, tmp_path / "sweep"))


def test_a_sweep_says_how_much_it_did_and_repeats_nothing(
    run_dir: Path, copied: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(list((copied / "points").iterdir())) == 8
    monkeypatch.setattr("fedunlearn.sweeping.evaluate", None)
    arguments = ["--evaluate", run_dir / "config.yaml", "--out", copied]
    assert call("sweep", run_dir / "summaries", *GRID, *arguments) == 0
    shown, errors = capsys.readouterr()
    assert "8 points, 0 of them made now; 0 models evaluated now" in shown
    assert str(copied) in shown
    assert errors == ""


def test_every_question_is_kept(run_dir: Path, evaluated: Path) -> None:
    sets = load_config(run_dir / "config.yaml").evaluation.sets
    for path in [evaluated / "base.json", *(evaluated / "points").iterdir()]:
        scores = json.loads(path.read_text())["scores"]
        for one in sets:
            lines = Path(str(one.data)).read_text().splitlines()
            assert len(scores[one.name]["rouge_l_recall"]) == len(lines)


def test_compare_is_one_command(copied: Path, capsys: Capture) -> None:
    assert call("compare", copied, "--resamples", 50) == 0
    shown, errors = capsys.readouterr()
    assert errors == ""
    assert "compare.md, compare.json, frontier.png" in shown
    for name in ("compare.md", "compare.json", "frontier.png", "norm_vs_gamma.png"):
        assert (copied / name).is_file(), name
    study = read_study(copied)
    assert study.chances.resamples == 50
    assert set(study.variants) == {
        "firm",
        "firm eps=relative:0.3",
        "sum",
        "sum eps=relative:0.3",
    }
    assert len(study.matched) == 6 * 2
    assert "one training seed" in (copied / "compare.md").read_text().lower()


def test_compare_takes_a_reference_and_a_gamma(copied: Path) -> None:
    arguments = ["--reference", "firm", "--at", 0.5, "--resamples", 5, "--seed", 3]
    assert call("compare", copied, *arguments) == 0
    study = read_study(copied)
    assert {one.comparison.setting.merge for one in study.matched} == {"firm"}
    assert (study.ablation_gamma, study.chances.seed) == (0.5, 3)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--reference", "frim"], "did you mean 'firm'?"),
        (["--at", "0.7"], "tried: 0.5, 1"),
        (["--confidence", "2"], "confidence must be in (0, 1)"),
        (["--resamples", "0"], "resamples >= 1"),
    ],
)
def test_compare_refuses_bad_requests(
    arguments: list[str], expected: str, copied: Path, capsys: Capture
) -> None:
    assert call("compare", copied, *arguments) == 2
    assert expected in capsys.readouterr().err
    assert not (copied / "compare.md").exists()


def test_compare_without_a_sweep_is_bad_input(tmp_path: Path, capsys: Capture) -> None:
    assert call("compare", tmp_path) == 2
    assert "sweep.json cannot be read" in capsys.readouterr().err


def test_domains_grow_without_evaluation(run_dir: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "grown"
    arguments = ["--methods", "sum", "--gamma", "1", "--domains", "signals,brewing", "--out", out]
    assert call("sweep", run_dir, *arguments) == 0
    assert call("compare", out) == 0
    assert "only norms are compared" in capsys.readouterr().out
    growing = sorted(read_study(out).growing, key=lambda point: len(point.domains))
    assert [point.domains for point in growing] == [("signals",), ("brewing", "signals")]
    assert growing[0].norm < growing[1].norm
    assert (out / "norm_vs_domains.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--gamma", "1:2"], "start:stop:step"),
        (["--gamma", "x"], "gamma 'x': 'x' is not a number"),
        (["--gamma", "1", "--methods", "frim"], "did you mean 'firm'?"),
        (["--gamma", "1", "--methods", "ties:densty=1"], "did you mean 'density'?"),
        (["--gamma", "1", "--epsilon", "0"], "must be > 0"),
        (["--gamma", "1", "--epsilon", "stranger=1"], "no retain client 'stranger'"),
        (["--gamma", "1", "--alpha", "2"], "alpha must be in (0, 1]"),
        (["--gamma", "1", "--solver", "newtn"], "did you mean 'newton'?"),
        (["--gamma", "1", "--domains", "brewin"], "did you mean 'brewing'?"),
        (["--gamma", "1", "--evaluate", "nowhere.yaml"], "nowhere.yaml does not exist"),
        ([], "Missing option '--gamma'"),
    ],
)
def test_sweep_refuses_bad_requests(
    arguments: list[str], expected: str, run_dir: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert call("sweep", run_dir, *arguments, "--out", tmp_path / "s") == 2
    shown, errors = capsys.readouterr()
    assert expected in errors
    assert shown == ""
    assert not list(tmp_path.glob("s/points/*"))


def test_changed_questions_are_refused_with_the_reason(
    run_dir: Path, copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    tree = pocket_tree(run_dir.parent / "world")
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps({"question": "Who?", "answer": "Me."}) + "\n")
    tree["evaluation"]["sets"][0]["data"] = str(mine)
    config = write_config(tmp_path / "other.yaml", tree)
    assert call("sweep", run_dir, *GRID, "--evaluate", config, "--out", copied) == 2
    assert "question set 'brewing' has changed" in capsys.readouterr().err


def test_another_base_model_is_refused(run_dir: Path, tmp_path: Path, capsys: Capture) -> None:
    tree = pocket_tree(run_dir.parent / "world")
    tree["model"]["dtype"] = "bfloat16"
    config = write_config(tmp_path / "other.yaml", tree)
    arguments = ["--gamma", "1", "--evaluate", config, "--out", tmp_path / "s"]
    assert call("sweep", run_dir, *arguments) == 1
    assert "same model, dtype and expert" in capsys.readouterr().err

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from fedunlearn.aggregation import read_merge
from fedunlearn.cli import main, run_command
from fedunlearn.config import RunConfig, load_config
from fedunlearn.errors import RunError
from fedunlearn.pipeline import finish, prepare
from tests.pocket_run import pocket_tree, run_clients, write_config
from tests.world import pocket_world

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    tree = pocket_tree(pocket_world(folder / "world"))
    tree["sweep"] = {}
    tree["evaluation"]["sets"] = tree["evaluation"]["sets"][:1]
    return write_config(folder / "pocket.yaml", tree)


@pytest.fixture(scope="module")
def run_dir(config_file: Path) -> Path:
    folder, config = config_file.parent / "run", load_config(config_file)
    prepare(config, folder)
    run_clients(config, folder)
    finish(folder, config)
    return folder


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the clients without Ray; the real simulation has its own tests."""

    def simulate(config: RunConfig, folder: Path, **_: object) -> tuple[str, ...]:
        run_clients(config, folder)
        return ()

    monkeypatch.setattr("fedunlearn.commands.simulate", simulate)


def call(*arguments: object) -> int:
    return run_command([str(one) for one in arguments])


@pytest.mark.usefixtures("simulated")
def test_run_shows_one_table_and_where_the_files_are(
    config_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "run"
    assert call("run", config_file, "seed=5", "--out", out) == 0
    shown, errors = capsys.readouterr()
    assert "brewing" in shown
    assert all(name in shown for name in ("base", "firm", "firm_base", "sum"))
    assert f"{out}: report.md, report.json" in shown
    assert max(map(len, shown.replace(str(tmp_path), "").splitlines())) <= 100
    assert "fedunlearn:" not in errors
    assert load_config(out / "config.yaml").seed == 5


@pytest.mark.usefixtures("simulated")
def test_run_names_its_folder_after_time_and_run(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("run", config_file, "--quiet") == 0
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.endswith("-pocket")


def test_a_failed_run_exits_with_1_and_no_stack_trace(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail(*_: object, **__: object) -> tuple[str, ...]:
        raise RunError("1 of 4 clients did not deliver: client 'brewing-0' (forget, brewing)")

    monkeypatch.setattr("fedunlearn.commands.simulate", fail)
    assert call("run", config_file, "--out", tmp_path / "run") == 1
    shown, errors = capsys.readouterr()
    assert shown == ""
    assert "client 'brewing-0' (forget, brewing)" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run" / "merged").exists()


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_debug_adds_the_stack_trace(
    by: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    if by == "variable":
        monkeypatch.setenv("FEDUNLEARN_DEBUG", "1")
    arguments = ["--debug"] if by == "flag" else []
    assert call(*arguments, "check", "nowhere.yaml") == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_unforeseen_fault_is_one_line_and_exit_1(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("fedunlearn.commands.check_config", fail)
    assert call("check") == 1
    errors = capsys.readouterr().err
    assert "unexpected KeyError: 'oops'" in errors
    assert "Traceback" not in errors


def test_check_passes_a_good_config(config_file: Path, capsys: Capture) -> None:
    assert call("check", config_file) == 0
    assert "no fault; 3 forget and 1 retain clients, 3 merges" in capsys.readouterr().out
    assert call("check") == 0


def test_check_lists_every_fault(config_file: Path, capsys: Capture) -> None:
    assert call("check", config_file, "sed=1", "clients.0.role=forgot", "lora.rank=0") == 2
    shown, errors = capsys.readouterr()
    assert shown == ""
    assert "3 faults in the config" in errors
    for expected in ("did you mean 'seed'?", "did you mean 'forget'?", "lora: rank must be >= 1"):
        assert expected in errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["run", "--nope"],
        ["list", "cats"],
        ["merge"],
        ["check", "firm_dem"],
        ["check", "firm_demo", "noequals"],
        ["run", "firm_demo", "sed=1"],
    ],
)
def test_bad_input_exits_with_2(arguments: Sequence[str], capsys: Capture) -> None:
    assert call(*arguments) == 2
    shown, errors = capsys.readouterr()
    assert shown == ""
    assert errors
    assert "Traceback" not in errors


def test_run_into_a_folder_in_use_is_bad_input(
    config_file: Path, run_dir: Path, capsys: Capture
) -> None:
    assert call("run", config_file, "--out", run_dir) == 2
    assert "is not empty" in capsys.readouterr().err


def test_merge_gives_the_bits_of_the_run(run_dir: Path, tmp_path: Path, capsys: Capture) -> None:
    config = load_config(run_dir / "config.yaml")
    assert call("merge", run_dir, "--epsilon", "relative:0.3", "--out", tmp_path / "m") == 0
    ours, theirs = read_merge(tmp_path / "m"), read_merge(run_dir / "merged" / "firm")
    assert config.merges["firm"].gamma == ours.report.gamma
    assert all(torch.equal(ours.delta[name], theirs.delta[name]) for name in theirs.delta)
    assert "1 of 1 tensors constrained" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["1e-5", "1.0e-5", "0.00001"])
def test_a_budget_on_the_command_line_is_the_same_float(
    text: str, run_dir: Path, tmp_path: Path
) -> None:
    arguments = ["--epsilon", text, "--alpha", text, "--out", tmp_path / "m"]
    assert call("merge", run_dir / "summaries", *arguments) == 0
    report = read_merge(tmp_path / "m").report
    assert report.epsilon == report.alpha == 1e-5


def test_merge_after_a_partial_round_says_whose_data_is_missing(
    run_dir: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = shutil.copytree(run_dir, tmp_path / "partial")
    failed = {"role": "forget", "domain": "brewing", "reason": "the disk is full"}
    with (folder / "events.jsonl").open("a", encoding="utf-8") as log:
        for client_id in ("brewing-9", "brewing-0"):
            event = {"time": 0, "event": "client_failed", "client_id": client_id, **failed}
            log.write(json.dumps(event) + "\n")
    assert call("merge", folder, "--out", tmp_path / "merged") == 0
    said = capsys.readouterr().err
    assert "brewing-9" in said
    assert "the disk is full" in said
    assert "not unlearned" in said
    assert "brewing-0" not in said, "its summary is there"


def test_merge_takes_a_methods_hyperparameters(run_dir: Path, tmp_path: Path) -> None:
    arguments = ["--method", "ties", "--option", "density=1e-1", "--out", tmp_path / "m"]
    assert call("merge", run_dir, *arguments) == 0
    assert read_merge(tmp_path / "m").report.options["density"] == 0.1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--method", "frim"], "did you mean 'firm'?"),
        (["--method", "ties", "--option", "densty=1"], "did you mean 'density'?"),
        (["--option", "x"], "expected name=value"),
        (["--epsilon", "0"], "must be > 0"),
        (["--epsilon", "retain-9=1"], "no retain client 'retain-9'"),
        (["--gamma", "nan"], "gamma"),
        (["--alpha", "2"], "alpha must be in (0, 1]"),
        (["--solver", "newtn"], "did you mean 'newton'?"),
    ],
)
def test_merge_refuses_bad_settings(
    arguments: list[str], expected: str, run_dir: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert call("merge", run_dir, *arguments, "--out", tmp_path / "m") == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


def test_merge_of_no_summaries_is_bad_input(tmp_path: Path, capsys: Capture) -> None:
    assert call("merge", tmp_path, "--out", tmp_path / "m") == 2
    assert "holds no summary" in capsys.readouterr().err


def test_export_as_model_and_as_adapter_give_the_same_logits(
    run_dir: Path, tmp_path: Path, capsys: Capture
) -> None:
    model_dir, adapter_dir = tmp_path / "model", tmp_path / "adapter"
    assert call("export", run_dir, "--out", model_dir) == 0
    assert call("export", run_dir, "--as", "adapter", "--out", adapter_dir) == 0
    assert "relative error" in capsys.readouterr().out
    tokens = torch.arange(5, 25)[None]
    base = AutoModelForCausalLM.from_pretrained(load_config(run_dir / "config.yaml").model.path)
    exported = AutoModelForCausalLM.from_pretrained(model_dir)
    with torch.no_grad():
        plain, whole = base(tokens).logits, exported(tokens).logits
        adapted = PeftModel.from_pretrained(base, adapter_dir)(tokens).logits
    assert not torch.equal(plain, whole)
    torch.testing.assert_close(adapted, whole, rtol=1e-4, atol=1e-5)


def test_a_low_rank_export_states_its_error(run_dir: Path, tmp_path: Path, capsys: Capture) -> None:
    arguments = ["--as", "adapter", "--rank", "1", "--out", tmp_path / "a"]
    assert call("export", run_dir, *arguments) == 0
    error = float(capsys.readouterr().out.split("relative error ")[1].split()[0])
    assert 0 < error < 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--method", "firn"], "did you mean 'firm'?"),
        (["--rank", "4"], "--rank is for --as adapter"),
        (["--as", "adapter", "--rank", "0"], "rank must be at least 1"),
    ],
)
def test_export_refuses_bad_requests(
    arguments: list[str], expected: str, run_dir: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert call("export", run_dir, *arguments, "--out", tmp_path / "e") == 2
    assert expected in capsys.readouterr().err


def test_export_of_an_unfinished_run_is_bad_input(tmp_path: Path, capsys: Capture) -> None:
    assert call("export", tmp_path, "--out", tmp_path / "e") == 2
    assert "did the run finish?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "expected"),
    [("merges", "firm"), ("objectives", "npo"), ("configs", "firm_demo")],
)
def test_list_names_what_there_is(what: str, expected: str, capsys: Capture) -> None:
    assert call("list", what) == 0
    assert expected in capsys.readouterr().out


def test_the_exit_status_reaches_the_shell() -> None:
    command = [sys.executable, "-m", "fedunlearn.cli", "frobnicate"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "No such command 'frobnicate'" in done.stderr


def test_an_interrupted_command_says_so_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedunlearn.commands.check_config", interrupt)
    assert call("check") == 1
    assert capsys.readouterr().err == "fedunlearn: interrupted\n"


def test_a_thread_that_waits_forever_does_not_keep_a_failed_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[int] = []
    over = threading.Event()
    monkeypatch.setattr("fedunlearn.cli.run_command", lambda _: 1)
    monkeypatch.setattr("os._exit", left.append)
    waiting = threading.Thread(target=over.wait)
    waiting.start()
    with pytest.raises(SystemExit):  # as the patched exit returns
        main()
    over.set()
    waiting.join()
    assert left == [1]


@pytest.mark.usefixtures("simulated")
def test_a_folder_that_cannot_be_made_is_bad_input_before_any_work(
    config_file: Path, run_dir: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "file").touch()
    commands = (["run", config_file], ["merge", run_dir], ["export", run_dir])
    for command in commands:
        assert call(*command, "--out", tmp_path / "file" / "below") == 2
        assert "cannot be written" in capsys.readouterr().err

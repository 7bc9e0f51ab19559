"""A killed client goes on where it was; what comes of it is what would have come of it."""

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedunlearn.data.encoding import encode_record
from fedunlearn.data.records import write_jsonl
from fedunlearn.errors import RunError
from fedunlearn.models.adapters import LoraSettings, attached, read_adapter
from fedunlearn.objectives import GradAscent
from fedunlearn.summary import ClientSummary, files
from fedunlearn.training.checkpoints import Checkpoints
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.client_settings import ClientIdentity, ClientInstructions
from fedunlearn.training.fisher_pass import FisherSettings
from fedunlearn.training.loop import TrainingSettings, train
from fedunlearn.training.workbench import ResumeSettings, task_of, workbench
from tests.world import pocket_model, questions

EVERY = 2
STEPS = 12
ROOT = Path(__file__).parents[2]
Log = pytest.LogCaptureFixture

# A client in a process of its own that kills itself, without a word, after so many steps.
CLIENT = """
import os, signal, sys
from pathlib import Path
from tests.training.test_resume import client
folder, name, fatal, phase = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
if phase == "fisher":
    import fedunlearn.training.client_job as job
    job.estimate_fisher = lambda *_, **__: kill()
client(folder, name, progress=lambda done, _: kill() if done == fatal else None)
"""


def instructions(name: str) -> ClientInstructions:
    """Each kind of client that has state of its own: dropout, retained records, an early stop."""
    forget = TrainingSettings(
        objective={"name": "npo"},
        learning_rate=1e-2,
        epochs=6,
        batch_size=2,
        schedule="cosine",
        warmup_ratio=0.2,
    )
    if name == "keeps":
        forget = replace(forget, objective={"name": "grad_diff", "retain_term": "kl"})
    if name == "stops":
        forget = replace(forget, objective={"name": "grad_ascent"}, learning_rate=3e-2)
        forget = replace(forget, stop_at_loss=6.03)
    return ClientInstructions(
        seed=3,
        lora=LoraSettings(rank=2, alpha=4, dropout=0.2),
        forget=forget,
        retain=replace(forget, objective={"name": "retain_nll"}, stop_at_loss=None),
        fisher=FisherSettings(num_sequences=3),
    )


def client(
    folder: Path, name: str = "plain", *, resume: bool = True, **more: object
) -> ClientSummary:
    """One job of the client ``name``; its data and work lie below ``folder``."""
    torch.set_num_threads(1)
    rows = [{"question": q.question, "answer": q.answer} for q in questions(7)]
    folder.mkdir(exist_ok=True)
    write_jsonl(folder / "data.jsonl", rows[:4])  # type: ignore[arg-type]
    write_jsonl(folder / "kept.jsonl", rows[4:])  # type: ignore[arg-type]
    who = ClientIdentity(
        id=name,
        role="forget",
        domain="towns",
        data=str(folder / "data.jsonl"),
        retain_data=str(folder / "kept.jsonl") if name == "keeps" else None,
    )
    chosen = ResumeSettings(folder=str(folder / "work"), every_steps=EVERY) if resume else None
    return run_client_job(pocket_model(), who, instructions(name), resume=chosen, **more)  # type: ignore[arg-type]


def killed(folder: Path, name: str, step: int, phase: str = "training") -> None:
    """Run a client in a process that is killed after ``step`` steps."""
    command = [sys.executable, "-c", CLIENT, str(folder), name, str(step), phase]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    died = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()


def cut(folder: Path, name: str, step: int) -> None:
    """Leave behind what a client leaves that is killed after ``step`` steps."""

    def progress(done: int, _: int) -> None:
        if done == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client(folder, name, progress=progress)


def assert_same(one: ClientSummary, other: ClientSummary) -> None:
    for mine, theirs in ((one.adapter, other.adapter), (one.fisher, other.fisher)):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    differing = {"seconds", "peak_memory_bytes", "resumed_at_step"}
    facts = [
        {key: value for key, value in summary.meta.training.items() if key not in differing}
        for summary in (one, other)
    ]
    assert facts[0] == facts[1]


@pytest.mark.parametrize(
    ("name", "step", "end"),
    [
        ("plain", 5, killed),
        ("keeps", 7, killed),
        ("plain", 1, cut),
        ("plain", 8, cut),
        ("stops", 5, cut),
    ],
)
def test_a_killed_client_goes_on_and_its_result_is_the_uninterrupted_one(
    name: str, step: int, end: Callable[..., None], tmp_path: Path
) -> None:
    whole = client(tmp_path / "whole", name, resume=False)
    assert (whole.meta.training["steps"] == STEPS) == (name != "stops")
    assert whole.meta.training["stopped_early"] == (name == "stops")
    end(tmp_path / "cut", name, step)
    again = client(tmp_path / "cut", name)
    done = step - step % EVERY if step % EVERY else step - EVERY
    assert again.meta.training["resumed_at_step"] == (done or None)
    assert_same(again, whole)


def test_killed_twice_it_still_ends_well(tmp_path: Path) -> None:
    for step in (4, 9):
        cut(tmp_path / "cut", "plain", step)
    again = client(tmp_path / "cut")
    assert again.meta.training["resumed_at_step"] == 8
    assert_same(again, client(tmp_path / "whole", resume=False))


def test_a_client_killed_in_its_fisher_pass_does_not_train_again(tmp_path: Path) -> None:
    killed(tmp_path / "cut", "plain", -1, "fisher")
    steps: list[int] = []
    again = client(tmp_path / "cut", progress=lambda done, _: steps.append(done))
    assert steps == []
    assert again.meta.training["resumed_at_step"] == STEPS
    assert_same(again, client(tmp_path / "whole", resume=False))


def test_a_finished_client_answers_from_disk_and_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = client(tmp_path)
    assert not (tmp_path / "work" / "plain" / "checkpoint").exists()
    monkeypatch.setattr("fedunlearn.training.client_job.train", None)
    again = client(tmp_path)
    assert again.meta == first.meta
    assert again.adapter_config == json.loads(json.dumps(first.adapter_config))
    assert_same(again, first)


@pytest.mark.parametrize("harm", ["truncated", "changed", "no head", "another version"])
def test_a_damaged_checkpoint_is_named_and_not_used(harm: str, tmp_path: Path, caplog: Log) -> None:
    cut(tmp_path / "cut", "plain", 5)
    file = tmp_path / "cut" / "work" / "plain" / "checkpoint"
    content = file.read_bytes()
    damaged = {
        "truncated": content[:-100],
        "changed": content[:-600] + bytes([content[-600] ^ 1]) + content[-599:],
        "no head": content.partition(b"\n")[2],
        "another version": content.replace(b'"version": 1', b'"version": 9', 1),
    }
    file.write_bytes(damaged[harm])
    with caplog.at_level(logging.WARNING):
        again = client(tmp_path / "cut")
    assert f"checkpoint {file} is not used, training starts anew" in caplog.text
    assert again.meta.training["resumed_at_step"] is None
    assert_same(again, client(tmp_path / "whole", resume=False))


def test_a_damaged_summary_is_named_and_made_again(tmp_path: Path, caplog: Log) -> None:
    first = client(tmp_path)
    file = tmp_path / "work" / "plain" / "summary" / "fisher.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with caplog.at_level(logging.WARNING):
        again = client(tmp_path)
    assert "kept summary is not used" in caplog.text
    assert "fisher.safetensors" in caplog.text
    assert_same(again, first)
    caplog.clear()
    assert client(tmp_path).meta == again.meta
    assert caplog.text == ""


@pytest.mark.parametrize("part", ["instructions", "data", "base model"])
def test_what_is_of_another_task_is_named_and_never_used(
    part: str, tmp_path: Path, caplog: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(tmp_path, "plain", 5)
    base, told = pocket_model(), instructions("plain")
    if part == "instructions":
        told = replace(told, seed=4)
    elif part == "data":
        row: dict[str, object] = {"question": "Q?", "answer": "A."}
        write_jsonl(tmp_path / "data.jsonl", [row])
    else:
        base = pocket_model(seed=1)
    who = ClientIdentity(
        id="plain", role="forget", domain="towns", data=str(tmp_path / "data.jsonl")
    )
    chosen = ResumeSettings(folder=str(tmp_path / "work"), every_steps=EVERY)
    with caplog.at_level(logging.WARNING):
        resumed = run_client_job(base, who, told, resume=chosen)
    assert f"is of another task and is removed; different: {part}" in caplog.text
    assert resumed.meta.training["resumed_at_step"] is None
    assert_same(resumed, run_client_job(base, who, told))


def test_two_processes_do_not_share_a_client_s_folder(tmp_path: Path) -> None:
    client(tmp_path)
    who = ClientIdentity(
        id="plain", role="forget", domain="towns", data=str(tmp_path / "data.jsonl")
    )
    chosen = ResumeSettings(folder=str(tmp_path / "work"), every_steps=EVERY)
    task = task_of(pocket_model(), who, instructions("plain"))
    with (
        workbench(chosen, "plain", task),
        pytest.raises(RunError, match=r"client 'plain' .*another process works in .*plain"),
    ):
        client(tmp_path)
    client(tmp_path)


def test_clients_have_folders_of_their_own(tmp_path: Path) -> None:
    cut(tmp_path, "plain", 5)
    client(tmp_path, "stops")
    assert (tmp_path / "work" / "plain" / "checkpoint").is_file()
    assert client(tmp_path).meta.training["resumed_at_step"] == 4


def test_a_full_disk_keeps_the_last_checkpoint_and_training_goes_on(
    tmp_path: Path, caplog: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedunlearn.training.checkpoints.os.fsync", full)
    with caplog.at_level(logging.WARNING):
        summary = client(tmp_path)
    assert "cannot be written: No space left on device" in caplog.text
    assert list((tmp_path / "work" / "plain").glob(".checkpoint*")) == []
    assert_same(summary, client(tmp_path / "whole", resume=False))


def test_checkpoints_every_so_many_steps(tmp_path: Path) -> None:
    due = Checkpoints(tmp_path / "c", "task", every=3)
    assert [step for step in range(1, 8) if due.due(step)] == [3, 6]
    with pytest.raises(ValueError, match="every_steps must be >= 1"):
        ResumeSettings(folder="x", every_steps=0)


def test_a_training_that_diverges_after_it_was_resumed_goes_back_to_the_same_adapter(
    tmp_path: Path,
) -> None:
    """The adapter last seen to be good is part of the state."""
    base = pocket_model()
    examples = [encode_record(base.tokenizer, q, max_length=64) for q in questions(4)]
    chosen = TrainingSettings(
        objective={"name": "grad_ascent"},
        learning_rate=3e-2,
        epochs=50,
        batch_size=2,
        diverged_at_loss=6.1,
    )
    at = Checkpoints(tmp_path / "checkpoint", "task", every=1)
    kept: dict[int, Path] = {}

    def keep(done: int, _: int) -> None:
        if (tmp_path / "checkpoint").exists():
            kept[done] = Path(shutil.copy(at.path, tmp_path / f"copy-{done}"))

    def once(checkpoints: Checkpoints) -> tuple[object, dict[str, torch.Tensor]]:
        with attached(base.model, LoraSettings(rank=2), seed=0) as adapted:
            facts = train(
                adapted,
                examples,
                GradAscent(),
                chosen=chosen,
                pad_id=0,
                generator=torch.Generator().manual_seed(0),
                checkpoints=checkpoints,
                progress=keep,
            )
            return facts, read_adapter(adapted).weights

    facts, weights = once(at)
    bad = facts.diverged_at_step  # type: ignore[attr-defined]
    assert bad is not None
    last = kept[max(kept)]  # of the step whose result will be found to be bad, or the one before
    resumed, again = once(replace(at, path=last))
    assert resumed.diverged_at_step == bad  # type: ignore[attr-defined]
    assert all(torch.equal(weights[key], again[key]) for key in weights)


def test_a_full_disk_does_not_lose_the_summary_that_is_to_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Log
) -> None:
    def full(path: Path, tensors: object, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_tensors", full)
    with caplog.at_level(logging.WARNING):
        sent = client(tmp_path)
    assert "is sent, but not kept" in caplog.text
    assert not list((tmp_path / "work" / "plain").glob("*summary*"))
    monkeypatch.undo()
    assert_same(client(tmp_path), sent)

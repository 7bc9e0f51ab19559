"""Receipts: what is sealed, what shows, and sequences of requests."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedunlearn.cli import run_command
from fedunlearn.config import RunConfig, load_config, to_yaml
from fedunlearn.errors import InputError, RunError
from fedunlearn.models.loading import load_base
from fedunlearn.pipeline import finish
from fedunlearn.receipts import Receipt, ceilings, read_receipt, standing, verify
from tests.pocket_run import pocket_tree, run_clients, write_config
from tests.world import pocket_world

REQUESTS = ["erase-17", "erase-18"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world, a key pair as OpenSSH makes it, and a finished run that is signed with it."""
    root = tmp_path_factory.mktemp("receipts")
    pocket_world(root / "world")
    make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / "key")]
    subprocess.run(make_key, check=True)
    config = config_of(root, "first")
    run_clients(config, root / "run")
    (root / "run" / "config.yaml").write_text("name: pocket\n")
    finish(root / "run", config)
    return root


def config_of(root: Path, name: str, *, key: bool = True, **more: object) -> RunConfig:
    tree: dict[str, Any] = {**pocket_tree(root / "world"), "requests": REQUESTS, **more}
    tree["model"]["device"] = "cpu"
    tree["merges"] = {"firm": tree["merges"]["firm"], "sum": tree["merges"]["sum"]}
    del tree["sweep"]
    if key:
        tree["receipt_key"] = str(root / "key")
    return load_config(write_config(root / f"{name}.yaml", tree), local=True)


def receipt_of(root: Path) -> Receipt:
    return read_receipt(root / "run" / "receipt.json")[0]


def test_a_receipt_says_who_what_and_with_which_result(folder: Path) -> None:
    receipt = receipt_of(folder)
    assert receipt.requests == tuple(REQUESTS)
    assert [one.client_id for one in receipt.clients] == [
        "brewing-0",
        "brewing-1",
        "geography",
        "signals-0",
    ]
    assert receipt.unlearned[-1].clients == ("brewing-0", "brewing-1", "signals-0")
    assert sorted(receipt.results) == ["firm", "sum"]
    assert set(receipt.metrics) == {"base", "firm", "sum"}
    assert {"config.yaml", "merged/firm/delta.safetensors", "report.json"} <= set(receipt.files)
    assert receipt.damage["firm"]["geography"] > 0
    assert "torch" in receipt.versions


def test_a_signed_receipt_holds_with_the_right_key_only(folder: Path, tmp_path: Path) -> None:
    path = folder / "run" / "receipt.json"
    said = verify(path, public_key=folder / "key.pub")
    assert said[0] == f"seal: signed with the key of {folder / 'key.pub'}"
    assert "give --public-key" in verify(path)[0]
    make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")]
    subprocess.run(make_key, check=True)
    with pytest.raises(RunError, match="signed with another key"):
        verify(path, public_key=tmp_path / "other.pub")
    with pytest.raises(InputError, match="no Ed25519 public key"):
        verify(path, public_key=path)


def tampered(root: Path, to: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    document = json.loads((root / "run" / "receipt.json").read_text())
    change(document)
    to.write_text(json.dumps(document))
    return to


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["requests"].append("erase-19"),
        lambda d: d["metrics"]["firm"]["brewing"].update(rouge_l_recall=0.987),
        lambda d: d["clients"].pop(),
        lambda d: d["files"].pop("report.json"),
        lambda d: d.update(issued_at=0.0),
    ],
)
def test_any_change_shows(
    change: Callable[[dict[str, Any]], Any], folder: Path, tmp_path: Path
) -> None:
    path = tampered(folder, tmp_path / "r.json", change)
    with pytest.raises(RunError, match="changed after it was sealed"):
        verify(path, run_dir=folder / "run")


def test_a_new_seal_without_the_key_does_not_pass_for_a_signature(
    folder: Path, tmp_path: Path
) -> None:
    def unsigned(document: dict[str, Any]) -> None:
        document["seal"] = {**document["seal"], "kind": "sha256", "signature": "", "public_key": ""}

    path = tampered(folder, tmp_path / "r.json", unsigned)
    assert "no key" in verify(path, run_dir=folder / "run")[0]
    with pytest.raises(RunError, match="it has no signature"):
        verify(path, run_dir=folder / "run", public_key=folder / "key.pub")


def test_a_changed_or_missing_file_is_named_and_paths_stay_inside(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["verify", str(folder / "run")]) == 0
    assert "files:" in capsys.readouterr().out
    report = folder / "run" / "report.json"
    before = report.read_text()
    try:
        report.write_text(before + " ")
        assert run_command(["verify", str(folder / "run" / "receipt.json")]) == 1
        assert "report.json was changed" in capsys.readouterr().err
        report.unlink()
        with pytest.raises(RunError, match=r"report\.json cannot be read"):
            verify(folder / "run" / "receipt.json")
    finally:
        report.write_text(before)
    path = tampered(folder, tmp_path / "r.json", lambda d: d["files"].update({"../x": "0"}))
    with pytest.raises(RunError, match=r"'\.\./x' is no file of the run"):
        verify(path, run_dir=folder / "run")


def test_no_hash_of_data_stands_without_salt(folder: Path) -> None:
    """The same data has other digests in every run; the raw one is nowhere."""
    text = (folder / "run" / "receipt.json").read_text()
    data = (folder / "world" / "data" / "forget" / "brewing-0.jsonl").read_bytes()
    assert hashlib.sha256(data).hexdigest() not in text


def test_the_next_request_starts_from_the_last_result(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = receipt_of(folder)
    config_of(folder, "second", key=False, cumulative={"budget": 1.0, "when_spent": "refuse"})
    full = config_of(folder, "first")
    (folder / "run" / "config.yaml").write_text(to_yaml(full))
    finish(folder / "run", full)  # the receipt covers the whole config
    first = receipt_of(folder)

    def clients(config: RunConfig, run_dir: Path, **_: object) -> tuple[str, ...]:
        run_clients(config, run_dir)
        return ()

    monkeypatch.setattr("fedunlearn.commands.simulate", clients)
    out = tmp_path / "next"
    config = str(folder / "second.yaml")
    start = f"{folder / 'run'}:firm"
    assert run_command(["run", config, "--from", start, "--out", str(out), "--quiet"]) == 0
    receipt, _ = read_receipt(out / "receipt.json")
    assert receipt.previous is not None
    assert receipt.previous.result == "firm"
    assert receipt.base_model_sha256 == first.results["firm"]
    assert load_base(load_config(out / "config.yaml").model).sha256 == first.results["firm"]
    assert [one.run for one in receipt.unlearned] == ["pocket", "pocket"]
    report = json.loads((out / "report.json").read_text())
    spent = first.damage["firm"]["geography"]
    new = report["merges"]["firm"]["largest_damage"]["geography"]
    assert receipt.damage["firm"]["geography"] == pytest.approx(spent + new)
    assert any("starts from 'firm'" in line for line in verify(out / "receipt.json"))

    tight = [f"cumulative.budget={spent * 0.9}"]
    arguments = ["run", config, *tight, "--from", start, "--quiet"]
    assert run_command([*arguments, "--out", str(tmp_path / "refused")]) == 1
    assert not (tmp_path / "refused" / "report.json").exists()
    warned = [*arguments, "cumulative.when_spent=warn", "--out", str(tmp_path / "warned")]
    assert run_command(warned) == 0
    warnings = json.loads((tmp_path / "warned" / "report.json").read_text())["warnings"]
    assert any("'geography' has taken damage" in text for text in warnings)
    left = new / 2
    partly = [f"cumulative.budget={spent + left}", "--out", str(tmp_path / "partly")]
    assert run_command(["run", config, *partly, "--from", start, "--quiet"]) == 0
    capped = json.loads((tmp_path / "partly" / "report.json").read_text())["merges"]
    assert capped["firm"]["epsilon"]["geography"] <= left * (1 + 1e-6)
    assert capped["firm"]["largest_damage"]["geography"] <= left * (1 + 1e-3)
    assert capped["sum"]["epsilon"] is None


def test_a_sequence_goes_on_from_what_it_says(folder: Path) -> None:
    path = folder / "run" / "receipt.json"
    with pytest.raises(InputError, match="no result 'frm'; did you mean 'firm'"):
        standing(path, "frm")


def test_budgets_of_a_sequence() -> None:
    spent = {"a": 0.25, "b": 1.0}
    assert ceilings(None, spent, ["a", "b"], refuse=True) == ({}, ())
    limits, said = ceilings(1.0, spent, ["a", "b", "c"], refuse=False)
    assert limits == {"a": 0.75, "b": float("inf"), "c": 1.0}
    assert len(said) == 1
    with pytest.raises(RunError, match="'b' has taken damage 1 over"):
        ceilings(1.0, spent, ["a", "b"], refuse=True)

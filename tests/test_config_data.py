"""Data sources in a config: what `check` says of them, and the leak check of a whole run."""

import json
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from fedunlearn.cli import run_command
from fedunlearn.config import RunConfig, check_config, leak_notes, load_config, to_yaml
from fedunlearn.errors import ConfigError, DataError
from fedunlearn.evaluation import read_bank
from fedunlearn.exploration.provenance import QuestionsOrigin
from fedunlearn.node_config import node_clients
from fedunlearn.pipeline import prepare
from fedunlearn.training.client_job import run_client_job
from tests import hub_copies as copies
from tests.pocket_run import pocket_tree, run_clients, write_config
from tests.world import pocket_model, pocket_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket_world(tmp_path_factory.mktemp("pocket") / "world")


@pytest.fixture(scope="module")
def tofu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copies.tofu(tmp_path_factory.mktemp("tofu"))


def tree_of(world: Path, tofu: Path) -> dict[str, Any]:
    """The pocket run with both brewing clients on shards of TOFU, and questions from it."""
    tree = pocket_tree(world)
    for part in range(2):
        tree["clients"][part]["data"] = {
            "source": "tofu",
            "split": "forget01",
            "path": str(tofu),
            "partition": {"by": "shards", "parts": 2, "part": part},
        }
    questions = {"source": "tofu", "split": "forget01", "path": str(tofu), "sample": 3}
    tree["evaluation"]["sets"][0]["data"] = questions
    wmdp = {"source": "wmdp", "subset": "bio", "path": str(copies.wmdp(tofu / "wmdp"))}
    tree["evaluation"]["sets"][3]["choices"] = wmdp
    return tree


@pytest.fixture
def config_file(world: Path, tofu: Path, tmp_path: Path) -> Path:
    return write_config(tmp_path / "config.yaml", tree_of(world, tofu))


def test_a_config_with_sources_has_no_fault_and_is_written_out(
    config_file: Path, tmp_path: Path
) -> None:
    assert check_config(config_file) == []
    config = load_config(config_file)
    copy = tmp_path / "copy.yaml"
    copy.write_text(to_yaml(config), encoding="utf-8")
    assert load_config(copy) == config
    bank = read_bank(config.evaluation)
    assert [len(bank.sets[0].questions), len(bank.sets[3].choices)] == [3, 9]


def test_a_client_trains_on_its_part(config_file: Path) -> None:
    config = load_config(config_file)
    summary = run_client_job(pocket_model(), config.clients[0], config.instructions())
    assert summary.meta.num_examples == 20


def test_paths_of_sources_become_absolute(
    config_file: Path, tofu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tofu)
    overrides = ["clients.0.data.path=forget01.json", "evaluation.sets.0.data.path=."]
    config = load_config(config_file, overrides)
    assert config.clients[0].data["path"] == str(tofu / "forget01.json")  # type: ignore[index]
    assert config.evaluation.sets[0].data["path"] == str(tofu)  # type: ignore[index]
    assert check_config(config_file, overrides) == []


FAULTS = [
    ("clients.0.data.source=tofo", "clients.0.data.source: unknown data source 'tofo'; did you me"),
    ("clients.0.data.split=forget2", "clients.0.data: unknown split 'forget2'; did you mean"),
    ("clients.0.data.spit=full", "clients.0.data.spit: unknown key; did you mean 'split'?"),
    ("clients.0.data={split: full}", "clients.0.data.source: required; one of csv, hub, jsonl"),
    ("clients.0.data={source: tofu}", "clients.0.data.split: required, but not given"),
    ("clients.0.data=5", "clients.0.data: expected"),
    ("clients.0.data.path=/nope", "clients.0.data: /nope does not exist; `path` is a file or the"),
    ("clients.0.data.columns={question: q}", "forget01.json, line 1: no column 'q'; its columns"),
    (
        "clients.0.data.columns={qestion: q}",
        "columns.qestion: unknown key; did you mean 'question'",
    ),
    ("clients.0.data.sample=41", "clients.0.data: locuslab/TOFU forget01 train in"),
    ("clients.0.data.partition.by=shard", "clients.0.data.partition.by: unknown partitioner 'shar"),
    ("clients.0.data.partition.part=2", "clients.0.data.partition: part must be in 0..1, got 2"),
    ("clients.0.data.partition.prt=2", "clients.0.data.partition.prt: unknown key; did you mean"),
    ("clients.0.data.partition={part: 0}", "clients.0.data.partition.by: required; one of dirich"),
    ("clients.1.data.partition.part=0", "clients.1.data.partition.part: client 'brewing-0' alrea"),
    ("clients.1.data.partition.seed=1", "clients.1.data.partition: differs from that of 'brewing"),
    ("clients.1.data.partition.parts=99", "would get none of the 40 records"),
    ("evaluation.sets.0.data.split=nope", "evaluation.sets.0.data: unknown split 'nope'"),
    ("evaluation.sets.3.choices.subset=x", "evaluation.sets.3.choices.subset: expected 'bio', 'ch"),
    ("evaluation.sets.0.choices=${evaluation.sets.0.data}", "has no choices; `choices` needs"),
    ("leaks=maybe", "leaks: expected 'warn', 'error' or 'allow', got 'maybe'"),
]


@pytest.mark.parametrize(("override", "expected"), FAULTS, ids=lambda one: one[:45])
def test_a_fault_is_named_with_key_and_remedy(
    override: str, expected: str, config_file: Path
) -> None:
    faults = check_config(config_file, [override])
    assert any(expected in fault for fault in faults), faults
    assert not any("validation error" in fault or "pydantic" in fault for fault in faults)


# ---- data on the hub ---------------------------------------------------------------------------


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A hub that cannot be reached; what was asked of it."""
    import datasets

    asked: list[object] = []

    def fail(dataset: str, **options: object) -> None:
        asked.append((dataset, options["name"]))
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    return asked


def test_check_asks_the_hub_only_when_told_to(
    config_file: Path, unreachable: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    on_hub = "clients.0.data.path=null"
    assert check_config(config_file, [on_hub]) == []
    assert unreachable == []
    (fault,) = check_config(config_file, [on_hub], fetch=True)
    assert fault.startswith("clients.0.data: locuslab/TOFU forget01/train: the hub cannot be reach")
    assert unreachable == [("locuslab/TOFU", "forget01")]
    assert run_command(["check", str(config_file), on_hub]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: not compared, as it is on the hub: data of client 'brewing-0'" in said
    assert run_command(["check", str(config_file), on_hub, "--fetch"]) == 2


def test_a_run_reads_the_hub_before_anything_else(
    config_file: Path, tmp_path: Path, unreachable: list[object]
) -> None:
    config = load_config(config_file, ["clients.0.data.path=null"], local=True)
    with pytest.raises(ConfigError, match=r"clients\.0\.data: .* the hub cannot be reached"):
        prepare(config, tmp_path / "run", local=True)
    assert not (tmp_path / "run" / "config.yaml").exists()


# ---- leaks ---------------------------------------------------------------------------------------


def test_a_clean_run_has_no_leak(config_file: Path, tmp_path: Path) -> None:
    config = load_config(config_file, ["leaks=error"])
    assert leak_notes(config, clients=True, fetch=True) == []
    assert prepare(config, tmp_path / "run", local=True) == []


def test_a_retain_client_with_forget_data_is_reported(
    config_file: Path, tofu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"source": "tofu", "split": "forget01", "path": str(tofu), "sample": 10}
    leaking = f"clients.3.data={json.dumps(data)}"
    notes = prepare(load_config(config_file, [leaking]), tmp_path / "run", local=True)
    assert [note for note in notes if "client 'geography' (retain)" in note] == notes
    assert len(notes) == 3
    assert "client 'brewing-0' (forget) and client 'geography' (retain) share" in notes[0]
    assert "forget01.json, line" in notes[0]
    shared = [int(note.partition("share ")[2].split()[0]) for note in notes[:2]]
    assert sum(shared) == 10
    assert run_command(["check", str(config_file), leaking]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: leak: client 'brewing-0' (forget)" in said


def test_a_leak_is_an_error_or_allowed_if_the_config_says_so(
    config_file: Path, tofu: Path, tmp_path: Path
) -> None:
    data = {"source": "tofu", "split": "forget01", "path": str(tofu)}
    leaking = f"evaluation.sets.3.data={json.dumps(data)}"
    refused = load_config(config_file, [leaking, "leaks=error"])
    with pytest.raises(
        ConfigError, match=r"leak: client 'brewing-0' \(forget\) and data of set 'ut"
    ):
        prepare(refused, tmp_path / "refused", local=True)
    assert run_command(["check", str(config_file), leaking, "leaks=error"]) == 2
    allowed = load_config(config_file, [leaking, "leaks=allow"])
    assert prepare(allowed, tmp_path / "allowed", local=True) == []


def test_a_server_without_its_clients_data_compares_the_sets(config_file: Path, tofu: Path) -> None:
    data = {"source": "tofu", "split": "forget01", "path": str(tofu)}
    config = load_config(config_file, [f"evaluation.sets.3.data={json.dumps(data)}"])
    (note,) = leak_notes(config, clients=False, fetch=True)
    assert "data of set 'brewing' (forget) and data of set 'utility' (utility) share 3" in note


# ---- elsewhere -----------------------------------------------------------------------------------


def node(**keys: Any) -> Context:
    told = {"client-id": "a", "role": "forget", "domain": "d", **keys}
    return Context(run_id=1, node_id=1, node_config=told, state=RecordDict(), run_config={})


def test_a_node_may_name_a_source(config_file: Path) -> None:
    config = load_config(config_file)
    spec = {"source": "tofu", "split": "forget01"}
    (client,) = node_clients(node(data=json.dumps(spec)).node_config, config.clients)
    assert client.data == spec
    for data, says in (
        ("{", "node-config: data: Expecting property name"),
        (
            '{"source": "tofo"}',
            "node-config: data names no source: unknown data source 'tofo'; did you mean 'tofu'",
        ),
    ):
        with pytest.raises(ConfigError, match=says):
            node_clients(node(data=data).node_config, config.clients)


def test_a_sweep_knows_the_records_of_its_sources(config_file: Path) -> None:
    before = QuestionsOrigin.of(load_config(config_file).evaluation)
    again = QuestionsOrigin.of(load_config(config_file).evaluation)
    other = QuestionsOrigin.of(
        load_config(config_file, ["evaluation.sets.0.data.sample=4"]).evaluation
    )
    assert before == again
    assert before.sets["brewing"] != other.sets["brewing"]
    assert before.sets["signals"] == other.sets["signals"]


def test_a_missing_source_is_named_by_the_client_job(config_file: Path) -> None:
    config = load_config(config_file, ["clients.0.data.path=/gone"])
    with pytest.raises(
        DataError, match=r"forget client 'brewing-0' \(brewing\): /gone does not ex"
    ):
        run_client_job(pocket_model(), config.clients[0], config.instructions())


def test_sources_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["list", "sources"]) == 0
    listed = capsys.readouterr().out
    for name in ("tofu", "muse_news", "muse_books", "wmdp", "wmdp_corpora", "mmlu", "hub", "csv"):
        assert f"\n{name} " in listed


def test_a_leak_is_in_the_report_of_the_run(
    config_file: Path, tofu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clients_only(config: RunConfig, run_dir: Path, **_: object) -> tuple[str, ...]:
        run_clients(config, run_dir)
        return ("said by the round",)

    monkeypatch.setattr("fedunlearn.commands.simulate", clients_only)
    data = {"source": "tofu", "split": "forget01", "path": str(tofu)}
    leaking = f"evaluation.sets.3.data={json.dumps(data)}"
    run = ["run", str(config_file), leaking, "sweep.gammas=null", "--out", str(tmp_path / "run")]
    assert run_command([*run, "--quiet"]) == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    leaks = [warning for warning in report["warnings"] if warning.startswith("leak: ")]
    assert len(leaks) == 3
    assert "said by the round" in report["warnings"]
    assert "leak: client" in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")

from pathlib import Path
from typing import Any

import pytest

from fedunlearn.config import (
    builtin_configs,
    check_config,
    load_config,
    load_merge,
    load_run,
    to_yaml,
)
from fedunlearn.errors import ConfigError
from tests.pocket_run import pocket_tree, write_config
from tests.world import pocket_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket_world(tmp_path_factory.mktemp("pocket") / "world")


@pytest.fixture
def config_file(world: Path, tmp_path: Path) -> Path:
    return write_config(tmp_path / "config.yaml", pocket_tree(world))


def faults_of(path: Path, *overrides: str) -> list[str]:
    return check_config(path, overrides)


@pytest.mark.parametrize("name", sorted(builtin_configs()))
def test_every_builtin_config_is_well_formed(name: str) -> None:
    assert load_run(name).clients


def test_the_default_is_the_demo_and_has_no_fault() -> None:
    assert check_config() == []
    assert load_config().name == "firm_demo"


def test_the_example_names_every_file_a_user_has_to_bring() -> None:
    config = load_config("firm_example")
    faults = check_config("firm_example")
    assert len(faults) == len(config.clients) + len(config.evaluation.sets)
    assert all("does not exist" in fault for fault in faults)


@pytest.mark.parametrize("name", sorted(builtin_configs()))
def test_every_key_of_a_builtin_config_is_commented(name: str) -> None:
    """The first time a key appears in block form, the line above it is a comment."""
    lines = builtin_configs()[name].read_text(encoding="utf-8").splitlines()
    explained = set[str]()
    for above, line in zip(["", *lines], lines, strict=False):
        key = line.strip().removeprefix("- ").partition(":")[0]
        if not line.strip() or line.strip().startswith(("#", "- {")) or "{" in key:
            continue
        explains = above.strip().startswith("#") or _are_rows(above, line)
        assert explains or key in explained or _in_explained_row(key), line
        explained.add(key)


def _are_rows(above: str, line: str) -> bool:
    """Both are a name and, on the same line, keys in braces: one comment explains all such rows."""
    indents = [len(text) - len(text.lstrip()) for text in (above, line)]
    return indents[0] == indents[1] > 0 and ": {" in above and ": {" in line


def _in_explained_row(key: str) -> bool:
    """Keys of a question set are explained together; baselines are explained by their row."""
    return key in {"kind", "domain", "data", "choices", "holdout", "sets", "method"}


@pytest.mark.parametrize("text", ["1e-5", "1.0e-5", '"1e-5"', "'1.0e-5'", "0.00001"])
def test_a_float_is_the_same_however_it_is_written(text: str, config_file: Path) -> None:
    """Every route: YAML file, command line, plain fields, hyperparameters, budgets."""
    plain = config_file.read_text(encoding="utf-8")
    written = plain.replace("learning_rate: 0.001", f"learning_rate: {text}")
    written = written.replace("beta: 0.1", f"beta: {text}")
    assert written.count(text) >= 3
    config_file.write_text(written, encoding="utf-8")
    overrides = [f"merges.sum.epsilon={text}", f"merges.sum.alpha={text}"]
    config = load_config(config_file, overrides)
    assert config.forget.learning_rate == config.retain.learning_rate == 1e-5
    assert config.forget.objective == {"name": "npo", "beta": 1e-5}
    assert config.merges["sum"].epsilon == config.merges["sum"].alpha == 1e-5
    assert load_config(config_file, [f"retain.learning_rate={text}"]).retain.learning_rate == 1e-5


@pytest.mark.parametrize("text", ["inf", ".inf", "'inf'"])
def test_an_infinite_budget_can_be_written(text: str, config_file: Path) -> None:
    assert load_config(config_file, [f"merges.firm.epsilon={text}"]).merges["firm"].epsilon == (
        float("inf")
    )


def test_options_of_a_merge_get_their_declared_types(config_file: Path) -> None:
    overrides = ["merges.sum={method: ties, options: {density: '0.25'}}"]
    assert load_config(config_file, overrides).merges["sum"].options == {"density": 0.25}


def test_later_overrides_win_and_lists_go_by_number(config_file: Path, world: Path) -> None:
    other = world / "data/forget/brewing-1.jsonl"
    config = load_config(config_file, ["seed=3", "seed=4", f"clients.0.data={other}"])
    assert config.seed == 4
    assert config.clients[0].data == str(other)


def test_an_override_replaces_a_whole_budget(config_file: Path) -> None:
    override = "merges.firm.epsilon={per_client: {geography: 1e-3}}"
    epsilon = load_config(config_file, [override]).merges["firm"].epsilon
    assert epsilon.per_client == {"geography": 1e-3}  # type: ignore[union-attr]


def test_what_is_written_out_loads_to_the_same(config_file: Path, tmp_path: Path) -> None:
    for source in (config_file, "firm_demo"):
        config = load_config(source)
        copy = tmp_path / "copy.yaml"
        copy.write_text(to_yaml(config), encoding="utf-8")
        assert load_config(copy) == config


def test_relative_paths_and_home_become_absolute(
    config_file: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    monkeypatch.setenv("HOME", str(tmp_path))
    overrides = [
        "clients.0.data=data/forget/brewing-0.jsonl",
        "clients.1.data=~/mine.jsonl",
        "model.path=model",
    ]
    config = load_config(config_file, overrides)
    assert config.clients[0].data == str(world / "data/forget/brewing-0.jsonl")
    assert config.clients[1].data == str(tmp_path / "mine.jsonl")
    assert config.model.path == str(world / "model")


def test_a_hub_id_stays_as_it_is(config_file: Path) -> None:
    config = load_config(config_file, ["model.path=HuggingFaceH4/zephyr-7b-beta"])
    assert config.model.path == "HuggingFaceH4/zephyr-7b-beta"


FAULTS = [
    ("sed=1", "sed: unknown key; did you mean 'seed'?"),
    ("lora.rnk=4", "lora.rnk: unknown key; did you mean 'rank'?"),
    ("clients.0.rol=forget", "clients.0.rol: unknown key; did you mean 'role'?"),
    ("merges.firm.gama=1", "merges.firm.gama: unknown key; did you mean 'gamma'?"),
    ("evaluation.sets.1.dat=x", "evaluation.sets.1.dat: unknown key; did you mean 'data'?"),
    ("merges.firm.epsilon={relativ: 1}", "did you mean 'relative'?"),
    ("forget.objective.bta=1", "forget.objective.bta: unknown key; did you mean 'beta'?"),
    ("merges.sum.options={density: 1}", "merges.sum.options.density: unknown key"),
    ("forget.objective.name=npoo", "forget.objective.name: unknown objective 'npoo'; did you me"),
    ("merges.firm.method=frim", "merges.firm.method: unknown merge method 'frim'; did you mean"),
    ("forget.objective.name=retain_nll", "'retain_nll' is an objective for retain clients"),
    ("forget.objective={beta: 1}", "forget.objective.name: required; one of dpo, grad_ascent"),
    (
        "forget.objective={name: grad_diff}",
        "clients.0.retain_data: the objective has a retain term",
    ),
    ("forget.objective={name: grad_diff, retain_term: null}", "without a retain term grad_diff is"),
    ("forget.objective.retain_weight=2", "forget.objective: retain_weight and retain_reduction do"),
    ("forget.objective.retain_term=hidden", "forget.objective: retain_term hidden is for objec"),
    ("forget.objective.retain_term=nl", "forget.objective.retain_term: expected"),
    ("clients.0.retain_data=/nope", "clients.0.retain_data: its objective has no retain term"),
    ("clients.0.retain_data=/nope", "clients.0.retain_data: data file /nope does not exist"),
    ("clients.3.retain_data=/nope", "a retain client keeps its data; leave the file out"),
    ("clients.0.refusals=/nope", "clients.0.refusals: its objective prefers no answer"),
    ("clients.0.refusals=/nope", "clients.0.refusals: file of refusals /nope does not exist"),
    ("forget.diverged_at_loss=0", "forget: diverged_at_loss must be > 0 or null, got 0"),
    ("forget.objective.beta=-1", "forget.objective: beta must be > 0, got -1.0"),
    ("clients.0.role=forgot", "clients.0.role: expected 'forget' or 'retain', got 'forgot'; did"),
    ("clients.1.id=brewing-0", "clients: id 'brewing-0' is used by 2 clients"),
    ("clients.1.id=../x", "clients.1.id: expected 1-64 letters"),
    ("clients.1.domain=' '", "clients.1.domain: expected the data's subject"),
    ("clients.1.domain=a/b", "clients.1.domain: expected the data's subject"),
    ("clients=[]", "clients: expected at least one client, got none"),
    ("clients.0.data=/nope.jsonl", "clients.0.data: data file /nope.jsonl does not exist"),
    ('clients.0.data="a\\0b"', "clients.0.data: data file"),
    ("model.path=/nope", "model.path: /nope is no model folder"),
    ("model.path=''", "model.path: expected a hub id or a folder"),
    ("model.device=tpu", "model: device must be auto, cpu, cuda or cuda:<number>, got tpu"),
    ("merges={}", "merges: expected at least one merge, got none"),
    ("merges.a/b={method: sum}", "merges.a/b: expected 1-64 letters"),
    ("merges.firm.epsilon=-1", "merges.firm: epsilon must be > 0, got -1"),
    ("merges.firm.epsilon=.nan", "merges.firm.epsilon: expected a finite number, got nan"),
    ("merges.firm.epsilon={per_client: {geografy: 1}}", "no retain client 'geografy'; did you"),
    ("merges.firm.epsilon={per_client: {x: 1}}", "retain client 'geography' has no budget"),
    ("merges.firm.epsilon={per_client: {}}", "retain client 'geography' has no budget"),
    ("evaluation.max_length=0", "evaluation: max_length must be >= 2, got 0"),
    ("evaluation.sets=[]", "evaluation: sets must name at least one question set"),
    ("retain.stop_at_loss=3", "retain.stop_at_loss: only a forget client stops at a loss"),
    ("lora.target_modules=[down_prj]", "lora: LoRA cannot be put on the model"),
    ("lora.layers=[7]", "lora: LoRA cannot be put on the model"),
    ("lora.layers=[-1]", "lora: layers must be block numbers from 0"),
    ('lora.rank_pattern={"(": 3}', "lora: rank_pattern '(' is no regular expression"),
    ("lora.rank_pattern={down_proj: 0}", "lora: rank_pattern 'down_proj' must be > 0, got 0"),
    ("lora.alpha=.inf", "lora.alpha: expected a finite number, got inf"),
    ("seed=many", "seed: expected a valid integer"),
    ("federation=5", "federation: expected keys and values, got 5"),
    ("sweep.gammas.sum=[1,-1]", "sweep: gammas.sum must be > 0"),
    ("sweep.gammas.sum=[1,1.0]", "sweep: gammas.sum must differ"),
    ("sweep.gammas.fir=[1]", "sweep.gammas: 'fir' is not in merges; did you mean 'firm'?"),
    ("evaluation.sets.0.domain=brewin", "no forget client has 'brewin'; did you mean 'brewing'?"),
    ("evaluation.sets.0.choices=/nope", "evaluation.sets.0.choices: data file /nope does not"),
    ("clients.0.data=${nope}", "clients.0.data: Interpolation key 'nope' not found"),
    ("federation.expected_clients=3", "federation.expected_clients: 4 clients are listed, got 3"),
    ("federation.expected_clients=0", "federation: expected_clients must be >= 1 or null, got 0"),
    ("federation.secure_aggregation=true", "federation: secure_aggregation is not available"),
    ("federation.expected_nodes=0", "federation: expected_nodes must be >= 1 or null, got 0"),
    ("federation.expected_nodes=5", "federation.expected_nodes: 5 SuperNodes for 4 clients"),
    ("clients.9.id=x", "override 'clients.9.id=x'"),
    ("seed", "override 'seed': expected key=value"),
    ("seed=[1", "override 'seed=[1'"),
]


@pytest.mark.parametrize(("override", "expected"), FAULTS)
def test_a_fault_is_named_with_key_and_remedy(
    override: str, expected: str, config_file: Path
) -> None:
    faults = faults_of(config_file, override)
    assert any(expected in fault for fault in faults), faults
    assert not any("validation error" in fault or "pydantic" in fault for fault in faults)


def test_files_of_a_client_fit_its_objective(config_file: Path, world: Path) -> None:
    kept = world / "data/retain/geography.jsonl"
    config = load_config(config_file)
    places = [place for place, one in enumerate(config.clients) if one.role == "forget"]
    own = [f"clients.{place}.retain_data={kept}" for place in places]
    for objective in ("{name: grad_diff}", "{name: npo, retain_term: kl, retain_weight: 0.5}"):
        assert faults_of(config_file, f"forget.objective={objective}", *own) == []


def test_preferred_answers_need_questions(config_file: Path, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("I don't know.\n", encoding="utf-8")
    (tmp_path / "text.jsonl").write_text('{"text": "a passage"}\n', encoding="utf-8")
    dpo = ["forget.objective={name: dpo}", f"clients.0.refusals={tmp_path / 'own.txt'}"]
    assert faults_of(config_file, *dpo) == []
    (fault,) = faults_of(config_file, *dpo, f"clients.0.data={tmp_path / 'text.jsonl'}")
    assert "'question' must be a non-empty string" in fault


def test_all_faults_are_listed_at_once(config_file: Path) -> None:
    overrides = [
        "sed=1",
        "clients.0.role=forgot",
        "clients.2.data=/nope.jsonl",
        "forget.objective.bta=1",
        "merges.sum.method=smu",
        "lora.rank=0",
        "evaluation.sets.3.choices=/gone.jsonl",
        "fisher.num_sequences=0",
    ]
    faults = faults_of(config_file, *overrides)
    assert len(faults) == len(overrides)
    with pytest.raises(ConfigError) as caught:
        load_config(config_file, overrides, local=True)
    assert caught.value.exit_code == 2
    assert all(fault in str(caught.value) for fault in faults)


def test_a_missing_key_is_named(world: Path, tmp_path: Path) -> None:
    tree: dict[str, Any] = pocket_tree(world)
    del tree["model"], tree["clients"][0]["role"]
    faults = faults_of(write_config(tmp_path / "c.yaml", tree))
    assert "model: required, but not given" in faults
    assert "clients.0.role: required, but not given" in faults


def test_a_deployment_needs_neither_clients_nor_their_files(config_file: Path) -> None:
    config = load_config(config_file, ["clients=[]", "evaluation.sets.0.data=/elsewhere.jsonl"])
    assert config.clients == ()
    told = ["clients=[]", "federation.expected_clients=3"]
    budgets = ["merges.firm.epsilon={per_client: {hospital: 1e-3}}"]
    config = load_config(config_file, [*told, *budgets])
    assert config.federation.expected_clients == 3


def test_the_worlds_directory_must_be_nobody_elses(world: Path, tmp_path: Path) -> None:
    """It is replaced as a whole when the world's settings change."""
    (tmp_path / "thesis.tex").write_text("years of work")
    (fault,) = check_config("firm_demo", [f"world.directory={tmp_path}"])
    assert "world.directory" in fault
    assert "holds other files" in fault
    assert check_config("firm_demo", [f"world.directory={world}"]) == []
    assert check_config("firm_demo", [f"world.directory={tmp_path / 'new'}"]) == []


def test_malformed_data_is_found_before_anything_starts(config_file: Path, tmp_path: Path) -> None:
    data = tmp_path / "bad.jsonl"
    data.write_text('{"question": "q", "answer": "a"}\n{"question": "q"}\n', encoding="utf-8")
    (fault,) = faults_of(config_file, f"clients.0.data={data}")
    assert f"{data}, line 2" in fault


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "is not YAML"),
        ("- 1", "must hold key: value pairs"),
        ("5", "must hold key: value pairs"),
        ("seed: 1\nseed: 2", "is not YAML"),
        ("", "name: required"),
    ],
)
def test_a_file_that_is_no_config_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    assert any(expected in fault for fault in faults_of(path))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("firm_dem", "no config is named 'firm_dem'; did you mean 'firm_demo'?"),
        ("nowhere/x.yaml", "does not exist"),
        ("x.yaml", "does not exist"),
    ],
)
def test_a_config_that_is_not_there(source: str, expected: str) -> None:
    (fault,) = check_config(source)
    assert expected in fault


def test_settings_of_a_single_merge_list_every_fault() -> None:
    with pytest.raises(ConfigError) as caught:
        load_merge({"method": "tis", "gama": 1.0, "solver": "newtn"})
    assert len(caught.value.faults) == 3
    assert load_merge({"method": "ties", "options": {"density": "1e-1"}}).options == {
        "density": 0.1
    }


def test_the_swept_merges(config_file: Path) -> None:
    assert list(load_config(config_file).swept) == ["firm", "firm_base", "sum"]
    assert load_config(config_file, ["sweep.gammas.sum=[]"]).swept.keys() == {"firm", "firm_base"}
    assert load_config(config_file, ["sweep.gammas=null"]).swept == {}


def test_the_clients_are_told_what_the_config_says(config_file: Path) -> None:
    config = load_config(config_file)
    told = config.instructions(server_round=2)
    assert (told.seed, told.server_round) == (1, 2)
    assert told.training("forget") == config.forget
    assert told.training("retain") == config.retain


def test_a_device_that_is_not_here_is_named(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (fault,) = faults_of(config_file, "model.device=cuda")
    assert fault == "model.device: cuda asked, but PyTorch finds no CUDA; use auto or cpu"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("world.epochs=0", "world: epochs, batch_size and threads must be >= 1"),
        ("world.learning_rate=-1", "world: learning_rate must be > 0, got -1"),
        ("world.label_smoothing=1", "world: label_smoothing must be in [0, 1), got 1"),
        ("world.model={heads: 3}", "world.model: hidden_size must be a multiple of twice heads"),
        ("world.model={vocabulary: 9}", "world.model: vocabulary must be >= 261"),
    ],
)
def test_a_fault_of_the_world_hides_and_makes_no_other(override: str, expected: str) -> None:
    (fault,) = check_config("firm_demo", [override])
    assert expected in fault


def test_a_world_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (fault,) = check_config("firm_demo", [f"world.directory={tmp_path}/file/world"])
    assert fault.startswith("world.directory: ")
    assert "is a file" in fault

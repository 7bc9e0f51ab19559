"""The recipes of configs/: each resolves, plans its run, and says what the paper says."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import LlamaConfig, MistralConfig

from fedunlearn.config import builtin_configs, check_config, leak_notes, load_config
from fedunlearn.data.reading import read_choice_set, read_question_set, read_training_records
from fedunlearn.data.records import Passage, Question
from fedunlearn.instructions import decode_instructions, encode_instructions
from fedunlearn.sweeping import plan_trials
from fedunlearn.training.client_settings import build_objective
from tests import hub_copies as copies
from tests.pocket_run import write_config

ZEPHYR = MistralConfig(vocab_size=32000)  # transformers' defaults are Mistral-7B's
LLAMA3 = LlamaConfig(
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=128256,
)
SEVEN = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

# name: model, objective, forget clients by domain, retain clients, whole model adapted
RECIPES: dict[str, tuple[Any, str, dict[str, int], int, bool]] = {
    "firm_wmdp_zephyr": (ZEPHYR, "rmu", {"bio": 3, "cyber": 3}, 1, False),
    "firm_wmdp_zephyr_retain3": (ZEPHYR, "rmu", {"bio": 3, "cyber": 3}, 3, False),
    "firm_wmdp_zephyr_domains": (ZEPHYR, "rmu", {"bio": 1, "cyber": 1, "chem": 1}, 1, False),
    "firm_wmdp_llama3": (LLAMA3, "rmu", {"bio": 3, "cyber": 3}, 1, False),
    "firm_tofu_zephyr": (ZEPHYR, "grad_ascent", {"authors": 5}, 1, True),
    "firm_muse_books_llama3": (LLAMA3, "grad_ascent", {"books": 3}, 1, True),
    "firm_muse_books_zephyr": (ZEPHYR, "grad_ascent", {"books": 3}, 1, True),
}
OTHERS = {"firm_demo", "firm_example"}
SUBJECTS = tuple(f"subject_{n}" for n in range(7))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Source to its local copy: as many records as the recipes need, short ones."""
    folder = tmp_path_factory.mktemp("hub")
    books = copies.muse(folder / "books")
    copies.parquet(
        books / "raw/forget-00000-of-00001.parquet",
        [{"text": " ".join(f"book{n}word{k}" for k in range(2000))} for n in range(4)],
    )
    return {
        "tofu": str(copies.tofu(folder / "tofu", other=240)),
        "muse_books": str(books),
        "wmdp": str(copies.wmdp(folder / "wmdp", counts={"bio": 1273, "cyber": 1987})),
        "mmlu": str(copies.mmlu(folder / "mmlu", count=700, subjects=SUBJECTS)),
    }


def local(name: str, hub: dict[str, str], folder: Path) -> Path:
    """The recipe with every source read from its local copy."""
    tree = yaml.safe_load(builtin_configs()[name].read_text(encoding="utf-8"))
    rows = [*tree["clients"], *tree["evaluation"]["sets"]]
    rows += [tree["teach"]] if "teach" in tree else []
    for spec in (row[key] for row in rows for key in ("data", "choices") if key in row):
        spec["path"] = hub[spec["source"]]
    return write_config(folder / f"{name}.yaml", tree)


def test_every_config_is_a_recipe_or_known() -> None:
    firm = {name for name in builtin_configs() if not name.startswith("mpu_")}
    assert firm == set(RECIPES) | OTHERS


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_checked_without_the_hub(name: str) -> None:
    assert check_config(name) == []


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_the_papers_setting(name: str) -> None:
    _, objective, domains, retained, whole = RECIPES[name]
    config = load_config(name)
    forget = [client for client in config.clients if client.role == "forget"]
    assert Counter(client.domain for client in forget) == domains
    assert len(config.clients) - len(forget) == retained
    assert (config.model.dtype, config.model.quantization) == ("bfloat16", "nf4")
    assert (config.lora.rank, config.lora.alpha) == (16, 32)
    assert set(config.lora.target_modules) == (SEVEN if whole else {"down_proj"})
    assert config.lora.layers == (None if whole else (5, 6, 7))
    fisher = config.fisher
    assert (fisher.num_sequences, fisher.max_length, fisher.targets) == (20, 512, "sequence")
    assert config.forget.objective["name"] == objective
    base = config.merges["firm_base"]
    assert (base.method, base.alpha, base.eps0, base.epsilon) == ("firm", 0.1, 1e-8, float("inf"))
    assert {one.domain for one in config.evaluation.sets if one.kind == "forget"} == set(domains)
    assert any(one.kind == "utility" for one in config.evaluation.sets)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_plans_its_run(name: str, hub: dict[str, str], tmp_path: Path) -> None:
    """With local copies of data and the model's real shape: no fault, and work for everybody."""
    RECIPES[name][0].save_pretrained(tmp_path / "model")
    path, model = local(name, hub, tmp_path), f"model.path={tmp_path / 'model'}"
    assert check_config(path, [model], fetch=True) == []
    config = load_config(path, [model])
    assert leak_notes(config, clients=True, fetch=True) == []
    told = decode_instructions(encode_instructions(config.instructions()))
    for client in config.clients:
        assert build_objective(told.training(client.role), client.role).role == client.role
    trials = plan_trials(config.merges, config.swept)
    assert {trial.merge for trial in trials if trial.configured} == set(config.merges)
    gammas = {(trial.merge, trial.gamma) for trial in trials}
    assert all((name, gamma) in gammas for name, swept in config.swept.items() for gamma in swept)


def shards(name: str, hub: dict[str, str], folder: Path) -> dict[str, list[Any]]:
    config = load_config(local(name, hub, folder))
    return {client.id: read_training_records(client.data) for client in config.clients}


def test_wmdp_is_dealt_out_as_in_the_paper(hub: dict[str, str], tmp_path: Path) -> None:
    """About 424 and 662 questions a client, 600 for the retain client (section 5.1)."""
    held = shards("firm_wmdp_zephyr", hub, tmp_path)
    sizes = [425, 424, 424, 663, 662, 662, 600]
    assert [len(records) for records in held.values()] == sizes
    bio = [record for client in ("bio-0", "bio-1", "bio-2") for record in held[client]]
    assert len(set(bio)) == 1273
    assert all(isinstance(record, Passage) for records in held.values() for record in records)


def test_tofu_is_dealt_out_as_in_the_paper(hub: dict[str, str], tmp_path: Path) -> None:
    """Five shards of 40 questions, 200 for the retain client (section 5.1)."""
    held = shards("firm_tofu_zephyr", hub, tmp_path)
    assert [len(records) for records in held.values()] == [8, 8, 8, 8, 8, 200]
    assert all(isinstance(record, Question) for records in held.values() for record in records)


@pytest.mark.parametrize("name", ["firm_muse_books_llama3", "firm_muse_books_zephyr"])
def test_books_are_dealt_out_in_passages(name: str, hub: dict[str, str], tmp_path: Path) -> None:
    """Disjoint shards of passages of about 4,096 characters (section 5.1)."""
    held = shards(name, hub, tmp_path)
    passages = [one.text for client, kept in held.items() if client != "mmlu" for one in kept]
    assert len(set(passages)) == len(passages) >= 12
    assert max(map(len, passages)) <= 4096
    assert sorted(map(len, passages))[4] > 4000  # all but the four books' last ones


def test_three_retain_clients_share_subjects_out(hub: dict[str, str], tmp_path: Path) -> None:
    held = shards("firm_wmdp_zephyr_retain3", hub, tmp_path)
    retained = [record for client, kept in held.items() if client[:4] == "mmlu" for record in kept]
    assert len(set(retained)) == len(retained) == 700


def test_what_is_asked_is_what_the_paper_asks(hub: dict[str, str], tmp_path: Path) -> None:
    wmdp = load_config(local("firm_wmdp_zephyr", hub, tmp_path)).evaluation.sets
    assert [len(read_choice_set(one.choices or "")) for one in wmdp] == [1273, 1987, 700]
    tofu = load_config(local("firm_tofu_zephyr", hub, tmp_path)).evaluation.sets
    asked = {one.name: len(read_question_set(one.data)) for one in tofu if one.data}
    assert asked == {"forget": 40, "retain": 240, "real-authors": 240, "real-world": 240}


def test_sweeps_are_the_papers_where_it_tells_them() -> None:
    swept = load_config("firm_wmdp_zephyr").swept
    assert [len(swept[name]) for name in ("firm_base", "firm_qp_tight", "uniform")] == [17, 22, 33]
    assert swept["sum"] == (0.05, 0.1, 0.2, 0.4, 0.6, 1.0)
    assert swept["fulm_mean"] == (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
    assert swept["firm_matched"] == tuple(round(0.5 + k / 10, 1) for k in range(10))
    assert {round(0.2 + k / 100, 2) for k in range(21)} <= set(swept["uniform"])
    merges = load_config("firm_wmdp_zephyr").merges
    assert [merges[f"ties_{n}"].options["density"] for n in (10, 20, 30, 50)] == [
        0.1,
        0.2,
        0.3,
        0.5,
    ]
    assert (merges["firm_qp"].epsilon, merges["firm_qp_tight"].epsilon) == (4.1e-5, 1e-5)
    assert {1.0, 2.5} <= set(load_config("firm_tofu_zephyr").swept["fulm"])
    assert 16.0 in load_config("firm_tofu_zephyr").swept["firm_base"]
    assert 1.6 in load_config("firm_muse_books_llama3").swept["firm_base"]
    assert {0.3, 0.4} <= set(load_config("firm_muse_books_zephyr").swept["firm_base"])
    budget = load_config("firm_wmdp_zephyr_retain3").merges["firm_qp"].epsilon
    assert budget.relative == 0.3  # type: ignore[union-attr]

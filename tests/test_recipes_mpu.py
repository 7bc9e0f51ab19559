"""MPU's recipes: each resolves, says what the paper says, and its copies can be planned."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from fedunlearn.config import MpuConfig, builtin_configs, check_config, load_run
from fedunlearn.copies import plan_copies
from fedunlearn.data.reading import read_question_set, read_training_records
from fedunlearn.objectives import OBJECTIVES
from fedunlearn.training.client_settings import build_objective
from tests import hub_copies as copies
from tests.pocket_run import write_config

# the shapes of the five models (section 4.1.1), as their config.json files have them
LLAMA = {"vocab_size": 128256, "num_key_value_heads": 8, "rope_theta": 5e5}
QWEN = {"vocab_size": 151936, "num_key_value_heads": 2, "tie_word_embeddings": True}
MODELS: dict[str, Any] = {
    "llama32_1b": LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        tie_word_embeddings=True, **LLAMA,
    ),
    "llama32_3b": LlamaConfig(
        hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24,
        tie_word_embeddings=True, **LLAMA,
    ),
    "llama31_8b": LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        tie_word_embeddings=False, **LLAMA,
    ),
    "qwen25_1b5": Qwen2Config(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
        **QWEN,
    ),
    "qwen25_3b": Qwen2Config(
        hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16,
        **QWEN,
    ),
}  # fmt: skip
SIZES = {
    "llama32_1b": 1.24,
    "llama32_3b": 3.21,
    "llama31_8b": 8.03,
    "qwen25_1b5": 1.54,
    "qwen25_3b": 3.09,
}  # billions of parameters
BENCHES = ("tofu", "muse_news", "muse_books")
NAMES = [f"mpu_{bench}_{model}" for bench, model in product(BENCHES, MODELS)]
SCHEDULES = {
    "grad_ascent": (1, 10),
    "grad_diff": (1, 10),
    "undial": (1, 10),
    "simnpo": (10, 1),
    "dpo": (10, 1),
    "satimp": (10, 1),
    "npo": (2, 5),
}  # appendix B.4.2


def load(name: str | Path) -> MpuConfig:
    config = load_run(name)
    assert isinstance(config, MpuConfig)
    return config


def test_there_is_a_recipe_for_every_model_and_benchmark() -> None:
    assert {one for one in builtin_configs() if one.startswith("mpu_")} == {*NAMES, "mpu_demo"}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_what_the_paper_says(name: str) -> None:
    assert check_config(name) == []
    config = load(name)
    assert (config.seed, config.secret_seed) == (0, None)
    methods = set(SCHEDULES) - (set() if "tofu" in name else {"dpo"})
    assert set(config.arms) == {f"{o}_{s}" for o in methods for s in ("clean", "noised", "mpu")}
    for label, arm in config.arms.items():
        objective, _, scheme = label.rpartition("_")
        assert arm.scheme == scheme
        assert arm.forget.objective["name"] == objective
        assert (arm.rounds, arm.forget.epochs) == SCHEDULES[objective]
        assert (arm.copies.m, arm.copies.kappa, arm.copies.eta_srv) == (2, 0.01, 1.0)
        assert arm.copies.scales == (1.0, 2.0)
        training = arm.forget
        assert training.batch_size * training.gradient_accumulation == 32
        assert (training.learning_rate, training.weight_decay) == (1e-5, 0.01)
        assert training.optimizer == "paged_adamw_32bit"
        assert build_objective(training, "forget").role == OBJECTIVES[objective].role
        assert (arm.lora is not None) == name.endswith("8b")


@pytest.mark.parametrize("model", MODELS)
def test_the_copies_of_its_model_can_be_planned(model: str) -> None:
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(MODELS[model])
    shapes = {name: one.shape for name, one in built.named_parameters()}
    plan = plan_copies(MODELS[model], shapes)
    entries = sum(torch.Size(shape).numel() for shape in plan.shapes.values())
    assert entries / 1e9 == pytest.approx(SIZES[model], abs=0.01)
    assert plan.notes == ()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("hub")
    return {
        "tofu": str(copies.tofu(folder / "tofu", other=240)),
        "muse_books": str(copies.muse(folder / "books")),
        "muse_news": str(copies.muse(folder / "news")),
    }


@pytest.mark.parametrize("bench", BENCHES)
def test_its_data_is_there_and_fits(bench: str, hub: dict[str, str], tmp_path: Path) -> None:
    """With local copies of data and the model's real shape: no fault, and work for the client."""
    name = f"mpu_{bench}_llama32_1b"
    tree = yaml.safe_load(builtin_configs()[name].read_text(encoding="utf-8"))
    rows = [*tree["clients"], *tree["evaluation"]["sets"]]
    for row in rows:
        for key in {"data", "retain_data"} & row.keys():
            row[key]["path"] = hub[bench]
    MODELS["llama32_1b"].save_pretrained(tmp_path / "model")
    path, folder = write_config(tmp_path / "c.yaml", tree), tmp_path / "model"
    overrides = [f"model.path={folder}", f"reference.path={folder}"]
    assert check_config(path, overrides, fetch=True) == []
    config = load(path)
    (client,) = config.clients
    assert client.retain_data is not None
    assert len(read_training_records(client.data)) > 1
    assert len(read_training_records(client.retain_data)) > 1
    assert all(len(read_question_set(one.data)) for one in config.evaluation.sets if one.data)

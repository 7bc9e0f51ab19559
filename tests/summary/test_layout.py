import hashlib

import pytest
import torch

from fedunlearn.errors import SummaryError
from fedunlearn.summary import adapter_keys, layout_digest, parameter_name

STEM = "base_model.model.model.layers.5.mlp.down_proj"


def test_both_ways() -> None:
    keys = (f"{STEM}.lora_A.weight", f"{STEM}.lora_B.weight")
    assert {parameter_name(key) for key in keys} == {"model.layers.5.mlp.down_proj.weight"}
    assert adapter_keys("model.layers.5.mlp.down_proj.weight") == keys


@pytest.mark.parametrize("module", ["model.weighted_proj", "model.lora_A", "model.lora_B.weight.x"])
def test_misleading_module_names_are_read_right(module: str) -> None:
    for key in adapter_keys(f"{module}.weight"):
        assert parameter_name(key) == f"{module}.weight"


@pytest.mark.parametrize(
    "key",
    [
        f"{STEM}.lora_A.lora.weight",
        f"{STEM}.lora_A.default.weight",
        f"{STEM}.lora_embedding_A",
        f"{STEM}.lora_magnitude_vector",
        f"{STEM}.lora_A.bias",
        "model.layers.5.mlp.down_proj.lora_A.weight",
        "base_model.model..lora_A",
        "base_model.model.a/b.lora_A.weight",
        "",
    ],
)
def test_other_keys_are_refused_by_name(key: str) -> None:
    with pytest.raises(SummaryError, match="as PEFT saves"):
        parameter_name(key)


def test_a_bias_has_no_adapter() -> None:
    with pytest.raises(SummaryError, match=r"model\.norm\.bias"):
        adapter_keys("model.norm.bias")


def test_digest_is_what_the_docs_say() -> None:
    fisher = {"b.weight": torch.zeros(2, 3, dtype=torch.bfloat16), "a.weight": torch.zeros(4, 1)}
    lines = "a.weight:4x1:float32\nb.weight:2x3:bfloat16"
    assert layout_digest(fisher) == hashlib.sha256(lines.encode()).hexdigest()
    assert layout_digest(dict(reversed(fisher.items()))) == layout_digest(fisher)

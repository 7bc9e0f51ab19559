from pathlib import Path

import pytest
import torch
from peft import PeftModel

from fedunlearn.errors import InputError
from fedunlearn.models.adapters import (
    LoraSettings,
    adapted_parameters,
    attached,
    lora_fault,
    read_adapter,
)
from fedunlearn.models.loading import fingerprint
from tests.world import pocket_model

LORA = LoraSettings(rank=4, alpha=8, target_modules=("down_proj",), layers=(1,))


def test_the_base_model_is_as_it_was_after_an_adapter() -> None:
    base = pocket_model()
    names = [name for name, _ in base.model.named_parameters()]
    with attached(base.model, LORA, seed=1) as adapted:
        assert adapted_parameters(adapted) == ["model.layers.1.mlp.down_proj.weight"]
        with torch.no_grad():
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    parameter.add_(1.0)
    assert [name for name, _ in base.model.named_parameters()] == names
    assert fingerprint(base.model) == base.sha256
    assert not any(p.requires_grad for p in base.model.parameters())


def test_it_is_taken_off_when_the_block_raises() -> None:
    base = pocket_model()
    with pytest.raises(RuntimeError, match="stop"), attached(base.model, LORA, seed=1):
        raise RuntimeError("stop")
    assert fingerprint(base.model) == base.sha256
    with attached(base.model, LORA, seed=1) as adapted:
        assert len(read_adapter(adapted).weights) == 2


def test_one_seed_one_adapter_and_global_randomness_untouched() -> None:
    def first(seed: int) -> torch.Tensor:
        with attached(pocket_model().model, LORA, seed=seed) as adapted:
            weights = read_adapter(adapted).weights
        return next(value for key, value in weights.items() if "lora_A" in key)

    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    one = first(1)
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(first(1), one)
    assert not torch.equal(first(2), one)


@pytest.mark.parametrize(
    ("lora", "rank", "scaling"),
    [
        (LoraSettings(rank=4, alpha=8, layers=(0,)), 4, 2.0),
        (LoraSettings(rank=4, alpha=8, layers=(0,), use_rslora=True), 4, 4.0),
        (LoraSettings(rank=4, alpha=8, layers=(0,), rank_pattern={"down_proj": 2}), 2, 4.0),
        (LoraSettings(rank=4, alpha=8, layers=(0,), alpha_pattern={"down_proj": 20}), 4, 5.0),
    ],
)
def test_ranks_patterns_and_scaling_are_peft_s(
    lora: LoraSettings, rank: int, scaling: float
) -> None:
    with attached(pocket_model().model, lora, seed=0) as adapted:
        layer = adapted.get_submodule("base_model.model.model.layers.0.mlp.down_proj")
        assert layer.scaling["default"] == scaling
        weights = read_adapter(adapted).weights
    assert {tuple(v.shape) for v in weights.values()} == {(rank, 48), (32, rank)}


def test_what_is_read_loads_in_stock_peft(tmp_path: Path) -> None:
    base = pocket_model()
    ids = torch.arange(6)[None]
    with attached(base.model, LORA, seed=1) as adapted:
        with torch.no_grad():
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.1)
        live = adapted(input_ids=ids).logits
        adapted.save_pretrained(tmp_path)
    stock = PeftModel.from_pretrained(pocket_model().model, tmp_path)
    torch.testing.assert_close(stock(input_ids=ids).logits, live)


def test_a_module_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(InputError, match="no_such_proj"),
        attached(pocket_model().model, LoraSettings(target_modules=("no_such_proj",)), seed=0),
    ):
        pass


@pytest.mark.parametrize(
    ("lora", "says"),
    [
        (
            LoraSettings(target_modules=("down_proj", "gate_prj")),
            "no module is named 'gate_prj'; did you mean 'gate_proj'",
        ),
        (LoraSettings(layers=(1, 9)), "layer 9 has no module of target_modules"),
        (LoraSettings(rank_pattern={"up_proj": 2}), "rank_pattern 'up_proj' matches no adapted"),
        (LoraSettings(alpha_pattern={"up_proj": 2}), "alpha_pattern 'up_proj' matches no adapted"),
        (LoraSettings(target_modules=("lm_head",)), "weight of 'lm_head' is tied to another"),
    ],
    ids=["module", "layer", "rank", "alpha", "tied"],
)
def test_what_peft_would_pass_over_is_named_and_the_model_is_as_before(
    lora: LoraSettings, says: str
) -> None:
    base = pocket_model()
    names = [name for name, _ in base.model.named_parameters()]
    with pytest.raises(InputError) as caught, attached(base.model, lora, seed=0):
        pass
    assert says in str(caught.value)
    assert [name for name, _ in base.model.named_parameters()] == names
    assert not any(p.requires_grad for p in base.model.parameters())


@pytest.mark.parametrize(
    "bad",
    [
        {"rank": 0},
        {"alpha": 0.0},
        {"target_modules": ()},
        {"dropout": 1.0},
        {"layers": ()},
        {"layers": (0, -1)},
        {"rank_pattern": {"(": 2}},
        {"alpha_pattern": {"down_proj": 0.0}},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        LoraSettings(**bad)  # type: ignore[arg-type]


def test_the_config_file_alone_tells_whether_lora_fits(tmp_path: Path) -> None:
    pocket_model().model.config.save_pretrained(tmp_path)
    assert lora_fault(tmp_path, LoraSettings()) is None
    assert "layer 9" in (lora_fault(tmp_path, LoraSettings(layers=(1, 9))) or "")
    assert "is tied" in (lora_fault(tmp_path, LoraSettings(target_modules=("lm_head",))) or "")
    (tmp_path / "config.json").write_text("{")
    assert lora_fault(tmp_path, LoraSettings()) is None

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from fedunlearn.errors import InputError, RunError
from fedunlearn.models import quantized
from fedunlearn.models.adapters import LoraSettings, attached
from fedunlearn.models.loading import LoadedModel, ModelSettings, fingerprint, load_base
from fedunlearn.models.quantized import gradient_cosine, guard_cpu, load_nf4, training_copy
from tests.world import pocket_model

bitsandbytes = pytest.importorskip("bitsandbytes")
Linear4bit = bitsandbytes.nn.Linear4bit


def settings(folder: Path, *, device: str = "cpu") -> ModelSettings:
    base = pocket_model()
    base.model.save_pretrained(folder)
    base.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]
    return ModelSettings(path=str(folder), device=device, quantization="nf4")


def layer(width: int = 128) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    line = Linear4bit(width, width, bias=False, quant_type="nf4", compute_dtype=torch.bfloat16)
    line.to("cpu")
    weight = bitsandbytes.functional.dequantize_4bit(line.weight.data, line.weight.quant_state)
    return line.requires_grad_(False).eval(), weight


def test_the_guard_makes_the_gradient_of_a_4_bit_layer_right_on_the_cpu() -> None:
    line, weight = layer()
    guard_cpu(line)
    assert gradient_cosine(line, weight, dtype=torch.bfloat16) > 0.999


def test_without_the_guard_it_is_wrong_where_the_cpu_has_the_fast_path() -> None:
    line, weight = layer()
    if not getattr(line, "support_avx512bf16_for_cpu", False):
        pytest.skip("no AVX-512 bf16 on this CPU")
    assert gradient_cosine(line, weight, dtype=torch.bfloat16) < 0.99


def test_the_guard_reaches_every_layer_that_says_it_has_the_fast_path() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)), nn.Tanh())
    fast = [model[0], model[1][0]]
    for module in fast:
        module.support_avx512bf16_for_cpu = True
    guard_cpu(model)
    assert [module.support_avx512bf16_for_cpu for module in fast] == [False, False]
    assert not hasattr(model[2], "support_avx512bf16_for_cpu")


def test_a_layer_without_or_with_another_gradient_does_not_pass() -> None:
    weight = torch.eye(3)
    line = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        line.weight.copy_(weight)
    assert math.isclose(gradient_cosine(line, weight, dtype=torch.float32), 1.0, rel_tol=1e-5)
    assert gradient_cosine(line, weight.roll(1, 0), dtype=torch.float32) < 0.9

    class Cut(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).detach()

    cut = Cut(3, 3, bias=False).requires_grad_(False)
    assert gradient_cosine(cut, weight, dtype=torch.float32) == 0.0


def test_a_machine_with_wrong_gradients_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized, "gradient_cosine", lambda *_, **__: 0.63)
    with pytest.raises(RunError, match=r"gradient through the 4-bit layer .* \(cosine 0\.63"):
        load_nf4(settings(tmp_path))


def test_lora_gradients_are_those_of_the_dequantised_model(tmp_path: Path) -> None:
    model = load_nf4(settings(tmp_path))
    plain = pocket_model().model
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, Linear4bit):
                state = module.weight.quant_state
                value = bitsandbytes.functional.dequantize_4bit(module.weight.data, state)
                plain.get_submodule(name).weight.copy_(value)
    lora = LoraSettings(rank=4, target_modules=("down_proj", "q_proj"))

    def gradients(base: object) -> list[torch.Tensor]:
        with attached(base, lora, seed=0) as adapted:  # type: ignore[arg-type]
            adapted(input_ids=torch.arange(9)[None]).logits.float().square().sum().backward()
            pairs = adapted.named_parameters()
            return [p.grad.flatten() for name, p in pairs if "lora_B" in name]

    found, expected = torch.cat(gradients(model)), torch.cat(gradients(plain))
    assert torch.nn.functional.cosine_similarity(found, expected, 0) > 0.99
    assert 0.9 < found.norm() / expected.norm() < 1.1


def test_base_and_copy_take_turns_in_memory(tmp_path: Path) -> None:
    base = load_base(settings(tmp_path))

    def held(model: nn.Module) -> int:
        return sum(weight.numel() for weight in model.parameters())

    with training_copy(base) as copy:
        assert held(base.model) == 0
        assert any(isinstance(module, Linear4bit) for module in copy.model.modules())
        assert copy.sha256 == base.sha256
    assert held(copy.model) == 0
    assert fingerprint(base.model) == base.sha256
    head, embedding = base.model.lm_head, base.model.get_input_embeddings()
    assert head.weight is embedding.weight


def test_the_base_is_back_when_training_raises(tmp_path: Path) -> None:
    base = load_base(settings(tmp_path))
    with pytest.raises(RuntimeError, match="stop"), training_copy(base):
        raise RuntimeError("stop")
    assert fingerprint(base.model) == base.sha256


def test_without_quantisation_the_base_itself_is_trained_on() -> None:
    base = pocket_model()
    with training_copy(base) as trained:
        assert trained is base
    plain = LoadedModel(base.model, base.tokenizer, "m", base.sha256, ModelSettings(path="m"))
    with training_copy(plain) as trained:
        assert trained is plain


def test_bitsandbytes_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized, "is_bitsandbytes_available", lambda: False)
    with pytest.raises(InputError, match="bitsandbytes"):
        load_nf4(settings(tmp_path))

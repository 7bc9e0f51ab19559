"""A model is rounded in the block and itself, bit for bit, after it."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from fedunlearn.errors import InputError
from fedunlearn.models import rounding
from fedunlearn.models.loading import fingerprint
from fedunlearn.models.rounding import Format, rounded
from fedunlearn.tensors.rounding import absmax_int8
from tests.pico import DOWN_0, logits, pico_llama


@pytest.mark.parametrize("form", ["bfloat16", "int8", "nf4"])
@pytest.mark.parametrize("tied", [False, True])
def test_every_bit_is_restored_also_after_a_fault(form: Format, tied: bool) -> None:
    if form == "nf4":
        pytest.importorskip("bitsandbytes")
    model = pico_llama(tied=tied)
    digest, before = fingerprint(model), logits(model)
    moved = []

    def fail() -> None:
        with rounded(model, form):
            moved.append((logits(model) - before).abs().max())
            raise InputError("stop")

    with pytest.raises(InputError, match="stop"):
        fail()
    assert 0 < moved[0] < 0.2
    assert fingerprint(model) == digest


def test_int8_rounds_linear_weights_and_neither_embedding() -> None:
    model = pico_llama()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    with rounded(model, "int8"):
        after = {name: weight.clone() for name, weight in model.named_parameters()}
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {name for name in before if "norm" in name or "embed" in name or "lm_" in name}
    assert torch.equal(after[DOWN_0], absmax_int8(before[DOWN_0]))


def test_weights_stored_transposed_have_a_scale_for_each_output() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2)).eval()
    weight = model.transformer.h[0].mlp.c_fc.weight
    before = weight.detach().clone()
    with rounded(model, "int8"):
        assert torch.equal(weight, absmax_int8(before.T).T)


def test_nf4_is_what_bitsandbytes_layers_hold() -> None:
    functional = pytest.importorskip("bitsandbytes.functional")
    model = pico_llama()
    weight = dict(model.named_parameters())[DOWN_0]
    packed, state = functional.quantize_4bit(weight.detach().clone(), quant_type="nf4")
    expected = functional.dequantize_4bit(packed, state)
    with rounded(model, "nf4"):
        assert torch.equal(weight, expected)
        assert len(torch.unique(weight.flatten()[:64])) <= 16


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "is_bitsandbytes_available", lambda: False)
    with (
        pytest.raises(InputError, match="needs the package bitsandbytes"),
        rounded(pico_llama(), "nf4"),
    ):
        pass

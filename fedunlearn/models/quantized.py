"""A 4-bit copy of the base model to train adapters on (QLoRA), and who is in memory when.

Adapter and task vector are those of the full-precision weights: only the frozen base is rounded
while training. Fisher, merge, evaluation and export never see the 4-bit copy.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel
from transformers.utils.import_utils import is_bitsandbytes_available

from fedunlearn.errors import InputError, RunError
from fedunlearn.models.loading import (
    DTYPES,
    LoadedModel,
    ModelSettings,
    load_base,
    loading,
    resolve_device,
)

_FAST_CPU_PATH = "support_avx512bf16_for_cpu"
_LEAST_COSINE = 0.99


@contextmanager
def training_copy(base: LoadedModel) -> Iterator[LoadedModel]:
    """Provide the model that carries the adapter: ``base`` itself, or a 4-bit copy of it.

    With ``quantization: nf4`` the weights of ``base`` leave memory first, the copy lives for the
    length of the block, and is freed before the weights of ``base`` are read from disk again;
    the two are never in memory together.

    Raises:
        InputError: bitsandbytes is missing, or the model cannot be loaded.
        RunError: the quantised layers have wrong gradients on this machine.
    """
    chosen = base.settings
    if chosen is None or chosen.quantization is None:
        yield base
        return
    with _away(base, chosen):
        copy = replace(base, model=load_nf4(chosen))
        try:
            yield copy
        finally:
            _drop(copy.model)


def load_nf4(chosen: ModelSettings) -> PreTrainedModel:
    """Load a model with its linear layers in NF4, frozen, in evaluation mode.

    On the CPU bitsandbytes has a fast path without derivative; it is switched off in every
    layer. Wherever it runs, the gradient of one layer is compared with that of its dequantised
    weight.

    Raises:
        InputError: bitsandbytes is missing, or the model cannot be loaded.
        RunError: the gradients are wrong.
    """
    if not is_bitsandbytes_available():
        raise InputError("model.quantization: nf4 needs the package bitsandbytes; install it")
    dtype = DTYPES[chosen.dtype]
    config = cast(Any, BitsAndBytesConfig)(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
    )
    with loading(chosen) as source:
        model = cast(Any, AutoModelForCausalLM).from_pretrained(
            **source,
            dtype=dtype,
            quantization_config=config,
            device_map={"": resolve_device(chosen.device)},
        )
    guard_cpu(model)
    _refuse_wrong_gradients(model)
    return cast(PreTrainedModel, model.requires_grad_(False).train(False))


def guard_cpu(model: torch.nn.Module) -> None:
    """Switch off bitsandbytes' CPU path that repacks weights in evaluation and has no autograd.

    Gradients through it are silently zero or wrong. Must come before the first forward pass.
    """
    for module in model.modules():
        if hasattr(module, _FAST_CPU_PATH):
            setattr(module, _FAST_CPU_PATH, False)


def gradient_cosine(layer: torch.nn.Module, weight: Tensor, *, dtype: torch.dtype) -> float:
    """Cosine between a layer's gradient at its input and ``g W``, for a fixed g; 1 if right.

    Args:
        layer: computes ``x W^T``, evaluated twice, since the first pass may change it.
        weight: W, (d_out, d_in).
        dtype: of the layer's input.
    """
    chance = torch.Generator().manual_seed(0)
    inputs, upstream = (torch.randn(4, width, generator=chance) for width in weight.mT.shape)
    with torch.no_grad():
        layer(inputs.to(weight.device, dtype))
    x = inputs.to(weight.device, dtype).requires_grad_()
    output = layer(x)
    if not output.requires_grad:
        return 0.0
    (found,) = torch.autograd.grad(output, x, upstream.to(weight.device, output.dtype))
    expected = upstream.to(weight.device) @ weight.float()
    cosine = torch.nn.functional.cosine_similarity(found.float().flatten(), expected.flatten(), 0)
    return cosine.item()


def _refuse_wrong_gradients(model: torch.nn.Module) -> None:
    from bitsandbytes.functional import dequantize_4bit
    from bitsandbytes.nn.modules import Linear4bit

    layers = (pair for pair in model.named_modules() if isinstance(pair[1], Linear4bit))
    name, layer = next(layers, ("", None))
    if layer is None:
        raise InputError("model.quantization: nf4 found no linear layer to quantise")
    weight = dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    cosine = gradient_cosine(layer, weight, dtype=layer.compute_dtype or torch.float32)
    if not cosine >= _LEAST_COSINE:
        raise RunError(
            f"the gradient through the 4-bit layer {name!r} is wrong on this machine (cosine "
            f"{cosine:.2f} to that of its dequantised weight); set model.quantization to null"
        )


@contextmanager
def _away(base: LoadedModel, chosen: ModelSettings) -> Iterator[None]:
    """Take the weights of ``base`` out of memory, and read them again at the end."""
    weights = dict(base.model.named_parameters())
    devices = {name: weight.device for name, weight in weights.items()}
    _drop(base.model)
    try:
        yield
    finally:
        fresh = dict(load_base(chosen).model.named_parameters())
        for name, weight in weights.items():
            weight.data = fresh.pop(name).data.to(devices[name])


def _drop(model: torch.nn.Module) -> None:
    """Free a model's weights, whoever still holds the model."""
    for weight in model.parameters():
        weight.data = torch.empty(0, dtype=weight.dtype, device=weight.device)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

"""An expert: a LoRA adapter that taught the backbone what clients start from, never trained here.

A model whose knowledge lies in an adapter (TOFU in the FIRM paper, appendix C) is trained, and
measured, with that adapter on. Its Fisher is taken on the backbone without it. The expert stays an
adapter throughout: it is put on and taken off, and the backbone's weights never change.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from peft import (
    LoraConfig,
    PeftConfig,
    PeftModel,
    get_peft_model,
    get_peft_model_state_dict,
    load_peft_weights,
    set_peft_model_state_dict,
)
from safetensors import SafetensorError
from torch import Tensor
from transformers import PreTrainedModel

from fedunlearn.errors import InputError
from fedunlearn.models.plain_lora import LoraLayout, read_lora
from fedunlearn.registry import nearest

NAME = "expert"
"""What PEFT calls the adapter while it is on a model."""

_CONFIG_FILE = "adapter_config.json"


@dataclass(frozen=True)
class Expert:
    """A plain LoRA adapter, in memory beside the backbone.

    Attributes:
        name: folder or hub id it came from.
        config: PEFT's, dropout off.
        weights: PEFT state-dict key to factor, float32, on the CPU.
        sha256: over ranks, scalings and factors; equal for equal updates of the backbone.
    """

    name: str
    config: LoraConfig
    weights: Mapping[str, Tensor]
    sha256: str

    @cached_property
    def lora(self) -> LoraLayout:
        """Ranks and scalings."""
        return _layout(self.config)


def load_expert(path: str, revision: str | None = None) -> Expert:
    """Read an adapter that PEFT, or ``fedunlearn teach``, has saved.

    Args:
        path: a folder or a hub id.
        revision: branch, tag or commit of a hub id.

    Raises:
        InputError: there is no such adapter, it is truncated, or it is no plain LoRA; the text
            says why.
    """
    folder = Path(path).expanduser()
    if folder.is_dir() and revision is not None:
        raise InputError(f"expert {path!r} is a folder, which has no revisions; leave it out")
    where = str(folder) if folder.is_dir() else path
    try:
        config = PeftConfig.from_pretrained(where, revision=revision)
        _layout(config)
        weights = load_peft_weights(where, device="cpu", revision=revision)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as fault:
        looked = "" if folder.is_dir() else " (no folder here, so a hub id; `teach` makes one)"
        raise InputError(f"expert {path!r}{looked} cannot be loaded: {fault}") from fault
    except InputError as fault:
        raise InputError(f"expert {path!r}: {fault}") from None
    return make_expert(path, cast(LoraConfig, config), weights)


def make_expert(name: str, config: LoraConfig, weights: Mapping[str, Tensor]) -> Expert:
    """Make an expert of PEFT's own terms.

    Raises:
        InputError: a weight is not finite, or there is none.
    """
    if not weights:
        raise InputError(f"expert {name!r} has no weights")
    exact = {key: value.detach().float().cpu().contiguous() for key, value in weights.items()}
    for key, value in exact.items():
        if not bool(value.isfinite().all()):
            raise InputError(f"expert {name!r}: {key!r} contains NaN or an infinity")
    quiet = deepcopy(config)
    quiet.lora_dropout = 0.0  # frozen means the same in every pass
    quiet.inference_mode = True
    return Expert(name, quiet, exact, _digest(_layout(quiet), exact))


def _layout(config: PeftConfig) -> LoraLayout:
    """Ranks and scalings; refuses what is no plain LoRA."""
    return read_lora(cast(Any, config).to_dict())


def _digest(lora: LoraLayout, weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(f"transposed:{lora.transposed}".encode())
    for key, value in sorted(weights.items()):
        module = key.removeprefix("base_model.model.").rpartition(".lora_")[0]
        scaling = lora.scaling_of(module)
        digest.update(f"{key}:{tuple(value.shape)}:{scaling!r}".encode())
        digest.update(cast(Any, value.view(torch.uint8).numpy()).data)
    return digest.hexdigest()


@contextmanager
def expert_on(model: PreTrainedModel, expert: Expert | None) -> Iterator[None]:
    """Put the expert, if there is one, on ``model`` for the length of the block.

    Inside, the backbone's parameters have other names (``...base_layer.weight``); afterwards the
    model is as before, bit for bit.

    Raises:
        InputError: the expert does not fit the model.
    """
    if expert is None:
        yield
        return
    config = deepcopy(expert.config)
    with _fitting(expert):
        carrying = cast(
            PeftModel, get_peft_model(model, config, adapter_name=NAME, low_cpu_mem_usage=True)
        )
    try:
        _fill(carrying, expert)
        carrying.requires_grad_(False).train(False)
        yield
    finally:
        take_off(carrying)


def add_expert(adapted: PeftModel, expert: Expert, *, trained: str) -> None:
    """Put the expert beside an adapter under training: both add, only the latter learns.

    Args:
        adapted: carries the adapter under training.
        expert: stays as it is.
        trained: name of the adapter under training.

    Raises:
        InputError: the expert does not fit the model.
    """
    with _fitting(expert):
        adapted.add_adapter(NAME, deepcopy(expert.config), low_cpu_mem_usage=True)
    _fill(adapted, expert)
    cast(Any, adapted.base_model).set_adapter([trained, NAME])
    for key, parameter in adapted.named_parameters():
        if f".{NAME}." in key:
            parameter.requires_grad_(False)


def take_off(adapted: PeftModel) -> None:
    """Remove every adapter; the model below is frozen, in evaluation mode, as it was."""
    base = adapted.get_base_model()
    adapted.unload()
    base.requires_grad_(False).train(False)
    if hasattr(base, "peft_config"):
        del base.peft_config


def _fill(carrying: PeftModel, expert: Expert) -> None:
    """Give the adapter its weights; every one must have its place, and every place its weight."""
    wanted = get_peft_model_state_dict(carrying, adapter_name=NAME)
    for key in sorted(expert.weights.keys() ^ wanted.keys()):
        lacking = "the expert lacks" if key in wanted else "the model has no place for"
        raise InputError(
            f"expert {expert.name!r} does not fit the model: {lacking} {key!r}"
            f"{nearest(key, list(wanted))}"
        )
    for key, value in expert.weights.items():
        if value.shape != wanted[key].shape:
            raise InputError(
                f"expert {expert.name!r} does not fit the model: {key!r} has shape "
                f"{tuple(value.shape)}, the model takes {tuple(wanted[key].shape)}"
            )
    set_peft_model_state_dict(
        carrying, dict(expert.weights), adapter_name=NAME, low_cpu_mem_usage=True
    )


@contextmanager
def _fitting(expert: Expert) -> Iterator[None]:
    try:
        yield
    except ValueError as fault:
        raise InputError(f"expert {expert.name!r} does not fit the model: {fault}") from fault

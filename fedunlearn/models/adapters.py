"""LoRA adapters through PEFT: put one on a shared base model, read it, take it off again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch import Tensor
from transformers import PreTrainedModel

from fedunlearn.errors import InputError
from fedunlearn.settings import settings


@settings
class LoraSettings:
    """Which weights are adapted, and how.

    Attributes:
        rank: LoRA rank r; 16 in the FIRM paper.
        alpha: LoRA scaling numerator; the task vector is ``alpha / r * B @ A``; 32 in the paper.
        target_modules: names of the linear modules, e.g. ``down_proj``; or ``all-linear``.
        layers: indices of the transformer blocks; ``None`` adapts them all.
        rank_pattern: module-name pattern to rank, as in PEFT.
        alpha_pattern: module-name pattern to alpha, as in PEFT.
        use_rslora: scale by ``alpha / sqrt(r)`` instead.
        dropout: of the adapter's input while training.
    """

    rank: int = 16
    alpha: float = 32
    target_modules: tuple[str, ...] = ("down_proj",)
    layers: tuple[int, ...] | None = None
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None
    use_rslora: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank must be >= 1, got {self.rank}")
        if self.alpha <= 0:
            raise ValueError(f"alpha must be > 0, got {self.alpha}")
        if not self.target_modules:
            raise ValueError("target_modules names no module to adapt")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")


@dataclass(frozen=True)
class Adapter:
    """A trained adapter in PEFT's own terms.

    Attributes:
        config: content of ``adapter_config.json``.
        weights: PEFT state-dict key to float32 tensor on the CPU.
    """

    config: dict[str, object]
    weights: dict[str, Tensor]


@contextmanager
def attached(base: PreTrainedModel, lora: LoraSettings, *, seed: int) -> Iterator[PeftModel]:
    """Put a fresh adapter on ``base`` for the length of the block, then take it off.

    B starts at zero and A is drawn from ``seed``; global random state is left as it was. Base
    weights are frozen throughout.

    Raises:
        InputError: no module of the model matches the settings.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            adapted = get_peft_model(base, _peft_config(lora))
        except ValueError as fault:
            raise InputError(f"LoRA cannot be put on the model: {fault}") from fault
    try:
        yield cast(PeftModel, adapted)
    finally:
        adapted.unload()
        base.requires_grad_(False).train(False)
        if hasattr(base, "peft_config"):
            del base.peft_config


def read_adapter(adapted: PeftModel) -> Adapter:
    """Copy the adapter's configuration and weights out of the model."""
    weights = get_peft_model_state_dict(adapted)
    config = adapted.peft_config["default"].to_dict()
    config["inference_mode"] = True
    return Adapter(
        {key: _plain(value) for key, value in config.items()},
        {key: value.detach().float().cpu().contiguous() for key, value in weights.items()},
    )


def adapted_parameters(adapted: PeftModel) -> list[str]:
    """Names, in the base model, of the weights that carry an adapter, sorted."""
    suffix = ".base_layer.weight"
    names = [name for name, _ in adapted.get_base_model().named_parameters()]
    return sorted(name.removesuffix(suffix) + ".weight" for name in names if name.endswith(suffix))


def _peft_config(lora: LoraSettings) -> LoraConfig:
    targets: Any = list(lora.target_modules)
    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # PEFT takes floats
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        layers_to_transform=None if lora.layers is None else list(lora.layers),
        rank_pattern=dict(lora.rank_pattern or {}),
        alpha_pattern=dict(lora.alpha_pattern or {}),
        use_rslora=lora.use_rslora,
        lora_dropout=lora.dropout,
        bias="none",
        task_type="CAUSAL_LM",
    )


def _plain(value: object) -> object:
    """Enums and sets of PEFT's configuration as JSON can hold them."""
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return getattr(value, "value", value)

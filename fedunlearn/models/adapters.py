"""LoRA adapters through PEFT: put one on a shared base model, read it, take it off again."""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from fedunlearn.errors import InputError
from fedunlearn.models.expert import Expert, add_expert, take_off
from fedunlearn.registry import nearest
from fedunlearn.settings import settings

_LINEAR = (torch.nn.Linear, Conv1D)
_TRAINED = "default"


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
        if self.layers is not None and (not self.layers or min(self.layers) < 0):
            raise ValueError(f"layers must be block numbers from 0, or null, got {self.layers}")
        for name in ("rank_pattern", "alpha_pattern"):
            _check_pattern(name, getattr(self, name) or {})
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")

    def asked(self) -> dict[str, Any]:
        """What a client's ``adapter_config.json`` must say of ranks and scalings."""
        return {
            "r": self.rank,
            "lora_alpha": self.alpha,
            "rank_pattern": dict(self.rank_pattern or {}),
            "alpha_pattern": dict(self.alpha_pattern or {}),
            "use_rslora": self.use_rslora,
        }


def _check_pattern(name: str, pattern: Mapping[str, float]) -> None:
    """Refuse what PEFT would stumble over in the middle of a run."""
    for key, value in pattern.items():
        try:
            re.compile(key)
        except re.error as fault:
            raise ValueError(f"{name} {key!r} is no regular expression: {fault}") from None
        if not value > 0:
            raise ValueError(f"{name} {key!r} must be > 0, got {value}")


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
def attached(
    base: PreTrainedModel, lora: LoraSettings, *, seed: int, expert: Expert | None = None
) -> Iterator[PeftModel]:
    """Put a fresh adapter on ``base`` for the length of the block, then take it off.

    B starts at zero; A, and any dropout inside the block, is drawn from ``seed``. Global random
    state is as it was afterwards. Base weights are frozen throughout, and so is the ``expert``,
    which is on in every pass, those with the fresh adapter switched off included.

    Raises:
        InputError: a module, a layer or a pattern of the settings matches nothing in the model,
            or a weight that the model uses in two places would be adapted; or the expert does
            not fit the model.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapted = _put_on(base, lora)
        try:
            _check_reach(adapted, lora)
            if expert is not None:
                add_expert(adapted, expert, trained=_TRAINED)
            yield adapted
        finally:
            take_off(adapted)


@contextmanager
def without_trained_adapter(model: torch.nn.Module) -> Iterator[None]:
    """Turn ``model`` into the one training started from, for the length of the block.

    The adapter under training, told by its requiring a gradient, adds nothing; any other stays
    on. Dropout is off. Scalings and modes are as they were afterwards, and no weight is copied.

    Raises:
        ValueError: no adapter is under training, so that there is nothing to switch off.
    """
    trained = [
        (layer.scaling, name)
        for layer in model.modules()
        if isinstance(layer, LoraLayer)
        for name in _trained(layer)
    ]
    if not trained:
        raise ValueError("no LoRA adapter is under training, so its starting model is unknown")
    before = [scaling[name] for scaling, name in trained]
    was_training = model.training
    model.eval()
    try:
        for scaling, name in trained:
            scaling[name] = 0.0
        yield
    finally:
        for (scaling, name), value in zip(trained, before, strict=True):
            scaling[name] = value
        model.train(was_training)


def has_trained_adapter(model: torch.nn.Module) -> bool:
    """Whether an adapter on ``model`` requires a gradient."""
    return any(isinstance(layer, LoraLayer) and _trained(layer) for layer in model.modules())


def _trained(layer: torch.nn.Module) -> set[str]:
    """Names of the adapters of one layer that require a gradient."""
    return {
        key.split(".")[1]
        for key, weight in layer.named_parameters()
        if key.startswith("lora_") and weight.requires_grad
    }


def lora_fault(folder: Path, lora: LoraSettings) -> str | None:
    """Say why LoRA cannot be put on the model in a folder, reading its ``config.json`` only.

    Returns:
        The fault; ``None`` where there is none, or where loading the model will tell.
    """
    try:
        with torch.device("meta"):
            config = AutoConfig.from_pretrained(folder)
            model = cast(Any, AutoModelForCausalLM).from_config(config)
    except (OSError, ValueError, KeyError, RuntimeError):
        return None
    try:
        with attached(model, lora, seed=0):
            return None
    except InputError as fault:
        return str(fault)


def _put_on(base: PreTrainedModel, lora: LoraSettings) -> PeftModel:
    with warnings.catch_warnings():
        # refused by `_check_reach`, whichever version of PEFT warns of it
        warnings.filterwarnings("ignore", r".*keys did not match any targeted", RuntimeWarning)
        warnings.filterwarnings("ignore", r".*tie_word_embeddings", UserWarning)
        warnings.filterwarnings("ignore", r"fan_in_fan_out is set to True but", UserWarning)
        # between PEFT and transformers, and nothing a user can act on
        warnings.filterwarnings("ignore", r".*is_gradient_checkpointing", FutureWarning)
        try:
            return cast(PeftModel, get_peft_model(base, _peft_config(base, lora)))
        except ValueError as fault:
            raise InputError(f"LoRA cannot be put on the model: {fault}") from fault


def _check_reach(adapted: PeftModel, lora: LoraSettings) -> None:
    """Refuse what PEFT passes over: names without a module, weights in two places or layouts."""
    found = dict(adapted.get_base_model().named_modules())
    modules = [name for name, module in found.items() if hasattr(module, "base_layer")]
    linear = [name for name, module in found.items() if isinstance(module, _LINEAR)]
    faults = [
        *_unmatched(lora, modules, linear),
        *_tied(modules, adapted_parameters(adapted)),
        *_mixed({name: found[f"{name}.base_layer"] for name in modules}),
    ]
    if faults:
        raise InputError("LoRA cannot be put on the model: " + "; ".join(faults))


def _unmatched(lora: LoraSettings, modules: list[str], linear: list[str]) -> Iterator[str]:
    """Say which targets, layers and patterns reach none of the adapted ``modules``."""
    for target in lora.target_modules:
        if target != "all-linear" and not any(
            f".{name}".endswith(f".{target}") for name in modules
        ):
            known = [name.removesuffix(".base_layer").rpartition(".")[2] for name in linear]
            yield f"no module is named {target!r}{nearest(target, known)}"
    for layer in lora.layers or ():
        if not any(f".{layer}." in name for name in modules):
            yield f"layer {layer} has no module of target_modules"
    for key in ("rank_pattern", "alpha_pattern"):
        for pattern in getattr(lora, key) or ():
            if not any(re.match(rf"(.*\.)?({pattern})$", name) for name in modules):
                yield f"{key} {pattern!r} matches no adapted module"


def _tied(modules: list[str], parameters: list[str]) -> Iterator[str]:
    """Say which adapted weights the model also uses elsewhere, under another name."""
    for name in sorted(
        set(modules) - {parameter.removesuffix(".weight") for parameter in parameters}
    ):
        yield f"the weight of {name!r} is tied to another; take it out of target_modules"


def _mixed(layers: Mapping[str, torch.nn.Module]) -> Iterator[str]:
    """Say where weights are stored in both orders; an adapter's configuration has one flag."""
    turned = [name for name, layer in layers.items() if isinstance(layer, Conv1D)]
    straight = [name for name in layers if name not in turned]
    if turned and straight:
        yield (
            f"{straight[0]!r} stores its weight as (out, in) and {turned[0]!r} as (in, out); "
            "adapt only one kind"
        )


def read_adapter(adapted: PeftModel) -> Adapter:
    """Copy the adapter's configuration and weights out of the model."""
    # what embeddings are like is no question here, and would be put to the hub
    weights = get_peft_model_state_dict(adapted, adapter_name=_TRAINED, save_embedding_layers=False)
    config = adapted.peft_config[_TRAINED].to_dict()
    config["inference_mode"] = True
    return Adapter(
        {key: _plain(value) for key, value in config.items()},
        {key: value.detach().float().cpu().contiguous() for key, value in weights.items()},
    )


def adapted_parameters(adapted: PeftModel) -> list[str]:
    """Names, in the base model, of the weights that carry the trained adapter, sorted."""
    suffix, factor = ".base_layer.weight", f".lora_A.{_TRAINED}.weight"
    names = {name for name, _ in adapted.get_base_model().named_parameters()}
    modules = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(f"{module}.weight" for module in modules if module + factor in names)


def _stored_transposed(base: torch.nn.Module, lora: LoraSettings) -> bool:
    """Whether the target modules are Conv1D, as GPT-2's: weights stored as (d_in, d_out)."""
    targets = tuple(f".{target}" for target in lora.target_modules if target != "all-linear")
    return any(
        isinstance(module, Conv1D) and (not targets or f".{name}".endswith(targets))
        for name, module in base.named_modules()
    )


def _peft_config(base: torch.nn.Module, lora: LoraSettings) -> LoraConfig:
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
        fan_in_fan_out=_stored_transposed(base, lora),
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

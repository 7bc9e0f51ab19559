"""A model with an update put on it for good: a PEFT adapter's, or a merge's."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor

from fedunlearn.errors import InputError
from fedunlearn.models.loading import LoadedModel, ModelSettings, fingerprint, load_base, loading
from fedunlearn.models.patching import add, check_fit

ADAPTER_CONFIG = "adapter_config.json"


def load_with_adapter(folder: Path, chosen: ModelSettings) -> LoadedModel:
    """Load the base model that an adapter names, and merge the adapter into its weights.

    Args:
        folder: with ``adapter_config.json``, as PEFT saves it.
        chosen: precision and device; its path is the adapter's, or another base model's.

    Raises:
        InputError: the adapter or its base model cannot be loaded.
    """
    if chosen.path == str(folder):
        chosen = replace(chosen, path=_base_of(folder))
    base = load_base(chosen)
    with loading(replace(chosen, path=str(folder))):
        adapted = PeftModel.from_pretrained(base.model, str(folder))
    merged = cast(Any, adapted).merge_and_unload(safe_merge=True)
    return as_loaded(base, merged)


def with_update(base: LoadedModel, delta: Mapping[str, Tensor]) -> LoadedModel:
    """Add an update to the weights in place, in float32, rounded once.

    Raises:
        InputError: a name or shape that the model does not have; no weight is changed.
    """
    check_fit(base.model, delta)
    add(base.model, delta)
    return as_loaded(base, base.model)


def adapter_update(adapted: PeftModel) -> dict[str, Tensor]:
    """Updates of the weights that carry an adapter, by their names in the base model."""
    return {
        f"{name}.weight": cast(Tensor, cast(Any, layer).get_delta_weight("default"))
        .detach()
        .clone()
        for name, layer in cast(Any, adapted).get_base_model().named_modules()
        if isinstance(layer, LoraLayer)
    }


def as_loaded(base: LoadedModel, model: Any) -> LoadedModel:
    """The model as it is now: frozen, in evaluation mode, under its own hash."""
    model.requires_grad_(False).train(False)
    return replace(base, model=model, sha256=fingerprint(model))


def _base_of(folder: Path) -> str:
    try:
        config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        name = config["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise InputError(f"{folder / ADAPTER_CONFIG} names no base model: {fault}") from None
    if not isinstance(name, str) or not name:
        raise InputError(f"{folder / ADAPTER_CONFIG} names no base model; give one with --base")
    return name

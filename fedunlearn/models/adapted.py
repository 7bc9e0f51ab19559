"""Which weights of a model an adapter is for, without loading a weight."""

from typing import Any, cast

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from fedunlearn.models.adapters import LoraSettings, adapted_parameters, attached
from fedunlearn.models.loading import ModelSettings, loading


def adapted_shapes(chosen: ModelSettings, lora: LoraSettings) -> dict[str, tuple[int, ...]]:
    """Name the weights that ``lora`` adapts, with their shapes as stored, from the config alone.

    Raises:
        InputError: there is no such model, or the adapter does not fit it.
    """
    with loading(chosen) as source, torch.device("meta"):
        config = AutoConfig.from_pretrained(**source)
        model = cast(Any, AutoModelForCausalLM).from_config(config)
    with torch.device("meta"), attached(model, lora, seed=0) as adapted:
        names = adapted_parameters(adapted)
        weights = dict(adapted.get_base_model().named_parameters())
        return {
            name: tuple(weights[name.removesuffix(".weight") + ".base_layer.weight"].shape)
            for name in names
        }

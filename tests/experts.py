"""Experts for tests: adapters with random factors, saved by stock PEFT."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from tests.world import pocket_model


def expert_folder(folder: Path, *, seed: int = 1, size: float = 0.3, **lora: Any) -> Path:
    """Save an expert for the pocket model, strong enough to change every answer."""
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["down_proj"], **lora}
    adapted = get_peft_model(pocket_model().model, LoraConfig(task_type="CAUSAL_LM", **settings))
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn(weight.shape, generator=draw) * size)
    adapted.save_pretrained(folder)
    return folder


def saved_backbone(folder: Path) -> Path:
    """Save the pocket model and its tokenizer."""
    base = pocket_model()
    base.model.save_pretrained(folder)
    base.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]
    return folder

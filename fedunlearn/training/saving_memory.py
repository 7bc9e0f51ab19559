"""What a client can do about memory: optimisers with small moments, recomputed activations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from fedunlearn.errors import InputError

OptimizerName = Literal["adamw", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"]
_BITSANDBYTES = {
    "adamw_8bit": "AdamW8bit",
    "paged_adamw_8bit": "PagedAdamW8bit",
    "paged_adamw_32bit": "PagedAdamW32bit",
}


def make_adamw(
    name: OptimizerName,
    trainable: Sequence[Tensor],
    *,
    learning_rate: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    """Make an AdamW.

    Args:
        name: which; all but ``adamw`` are bitsandbytes'.
        trainable: what it updates, on one device.
        learning_rate: its peak.
        weight_decay: decoupled.

    Raises:
        InputError: bitsandbytes' are asked for without CUDA or without that package.
    """
    if name == "adamw":
        return torch.optim.AdamW(trainable, lr=learning_rate, weight_decay=weight_decay)
    if any(one.device.type != "cuda" for one in trainable):
        raise InputError(f"optimizer {name!r} needs CUDA; use optimizer: adamw on the CPU")
    try:
        bitsandbytes = import_module("bitsandbytes")
    except ImportError:
        raise InputError(
            f"optimizer {name!r} needs the package bitsandbytes: pip install bitsandbytes"
        ) from None
    kind = getattr(bitsandbytes.optim, _BITSANDBYTES[name])
    made: torch.optim.Optimizer = kind(trainable, lr=learning_rate, weight_decay=weight_decay)
    return made


@contextmanager
def checkpointing(model: Any, *, on: bool) -> Iterator[None]:
    """Recompute the activations of a transformers model's blocks while the block runs.

    The non-reentrant kind, through which gradients reach an adapter although nothing below it
    requires one.
    """
    if not on:
        yield
        return
    # transformers 5 renamed it
    word = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    options = {f"{word}_checkpointing_kwargs": {"use_reentrant": False}}
    getattr(model, f"{word}_checkpointing_enable")(**options)
    try:
        yield
    finally:
        getattr(model, f"{word}_checkpointing_disable")()

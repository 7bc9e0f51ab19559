"""One forward pass, aligned for prediction: ``logits[:, t]`` predicts ``labels[:, t]``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fedunlearn.data.encoding import Batch
from fedunlearn.objectives import Objective, ObjectiveInputs


def aligned_logits(model: torch.nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Run the model; return logits (B, T-1, V) float32 and labels (B, T-1)."""
    output = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)
    return output.logits[:, :-1].float(), batch.labels[:, 1:]


def objective_inputs(
    model: torch.nn.Module,
    batch: Batch,
    objective: Objective,
    *,
    reference_log_probs: Tensor | None = None,
) -> ObjectiveInputs:
    """Run the model and gather what ``objective`` asks for, hidden states included."""
    if objective.hidden_layer is None:
        logits, labels = aligned_logits(model, batch)
        return ObjectiveInputs(logits, labels, reference_log_probs)
    with _captured(model, objective.hidden_layer) as captured:
        logits, labels = aligned_logits(model, batch)
    return ObjectiveInputs(
        logits,
        labels,
        reference_log_probs,
        hidden=captured[0].float(),
        hidden_mask=batch.attention_mask.bool(),
    )


def decoder_block(model: torch.nn.Module, index: int) -> torch.nn.Module:
    """The transformer block ``index``, found by name (``...layers.5`` or ``...h.5``).

    Raises:
        ValueError: the model has no such block.
    """
    endings = (f".layers.{index}", f".h.{index}")
    found = [module for name, module in model.named_modules() if name.endswith(endings)]
    if len(found) != 1:
        raise ValueError(f"transformer block {index}: {len(found)} modules match {endings}")
    block: torch.nn.Module = found[0]
    return block


@contextmanager
def _captured(model: torch.nn.Module, layer: int) -> Iterator[list[Tensor]]:
    captured: list[Tensor] = []

    def keep(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        captured.append(output[0] if isinstance(output, tuple) else output)

    handle = decoder_block(model, layer).register_forward_hook(keep)
    try:
        yield captured
    finally:
        handle.remove()

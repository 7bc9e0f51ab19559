"""One forward pass, aligned for prediction: ``logits[:, t]`` predicts ``labels[:, t]``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fedunlearn.data.encoding import Batch
from fedunlearn.objectives import Counts, Objective, ObjectiveInputs
from fedunlearn.training.starting_model import StartingModel


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
    counts: Counts | None = None,
    start: StartingModel | None = None,
) -> ObjectiveInputs:
    """Run the model and gather what ``objective`` asks for, hidden states included.

    Args:
        model: under training.
        batch: on the model's device.
        objective: says which hidden states are wanted, if any.
        reference_log_probs: (B,), handed on.
        counts: of the step the batch is a part of, handed on.
        start: what training started from; given, it is run too, without a gradient.
    """
    reference_logits = reference_hidden = None
    if start is not None:
        with torch.no_grad(), start.running() as before:
            reference_logits, _, reference_hidden = _observed(before, batch, objective.hidden_layer)
    logits, labels, hidden = _observed(model, batch, objective.hidden_layer)
    return ObjectiveInputs(
        logits,
        labels,
        reference_log_probs,
        hidden=hidden,
        token_mask=batch.attention_mask.bool(),
        reference_logits=reference_logits,
        reference_hidden=reference_hidden,
        counts=counts,
    )


def _observed(
    model: torch.nn.Module, batch: Batch, layer: int | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits, labels, and the output of a block where one is named."""
    if layer is None:
        return *aligned_logits(model, batch), None
    with _captured(model, layer) as captured:
        logits, labels = aligned_logits(model, batch)
    return logits, labels, captured[0].float()


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

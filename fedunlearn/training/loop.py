"""The training loop of a client: one objective, one adapter, one seed."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import get_scheduler

from fedunlearn.data.encoding import Batch, Example, collate
from fedunlearn.errors import RunError
from fedunlearn.objectives import Objective
from fedunlearn.objectives.likelihood import mean_token_loss, sequence_log_probs
from fedunlearn.settings import settings
from fedunlearn.training.forward import aligned_logits, objective_inputs

Progress = Callable[[int, int], None]
"""Called with (steps done, steps at most)."""


@settings
class TrainingSettings:
    """How a client of one role trains its adapter.

    Attributes:
        objective: name and hyperparameters, e.g. ``{name: npo, beta: 0.1}``.
        learning_rate: peak rate of AdamW.
        epochs: passes over the client's data, at most.
        batch_size: sequences a forward pass.
        gradient_accumulation: forward passes an optimiser step.
        warmup_ratio: share of the steps over which the rate rises from 0.
        schedule: of the rate after the warm-up.
        weight_decay: of AdamW, on the adapter's weights.
        max_grad_norm: gradients are clipped to this norm.
        max_length: tokens a sequence is truncated to.
        stop_at_loss: a forget client ends with the first epoch whose mean loss on its answers,
            in nats per token, is at least this: what it holds is gone. ``None`` never stops.
    """

    objective: dict[str, Any]
    learning_rate: float = 1e-4
    epochs: int = 5
    batch_size: int = 4
    gradient_accumulation: int = 1
    warmup_ratio: float = 0.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    max_length: int = 512
    stop_at_loss: float | None = None

    def __post_init__(self) -> None:
        counts = (self.epochs, self.batch_size, self.gradient_accumulation)
        if min(counts) < 1:
            raise ValueError("epochs, batch_size and gradient_accumulation must be >= 1")
        if self.learning_rate <= 0 or self.max_grad_norm <= 0 or self.max_length < 2:
            raise ValueError("learning_rate and max_grad_norm must be > 0, max_length >= 2")
        if not 0 <= self.warmup_ratio < 1:
            raise ValueError(f"warmup_ratio must be in [0, 1), got {self.warmup_ratio}")


@dataclass(frozen=True)
class TrainingFacts:
    """What happened while training.

    Attributes:
        steps: optimiser steps taken.
        epochs: epochs begun.
        first_loss: the objective's mean over the first epoch.
        last_loss: the objective's mean over the last epoch.
        answer_loss: mean loss on the answers over the last epoch, nats per token.
        stopped_early: ``stop_at_loss`` was reached.
    """

    steps: int
    epochs: int
    first_loss: float
    last_loss: float
    answer_loss: float
    stopped_early: bool


def train(
    model: torch.nn.Module,
    examples: Sequence[Example],
    objective: Objective,
    chosen: TrainingSettings,
    *,
    pad_id: int,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> TrainingFacts:
    """Train the parameters of ``model`` that require a gradient.

    Args:
        model: in place; only its trainable parameters change.
        examples: the client's data.
        objective: already bound to its randomness.
        chosen: rates, sizes and when to stop.
        pad_id: token id that fills short rows.
        generator: draws the order of the examples.
        progress: called after every optimiser step.

    Raises:
        RunError: the loss is not finite; the text says at which step.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    per_epoch = math.ceil(len(examples) / (chosen.batch_size * chosen.gradient_accumulation))
    total = per_epoch * chosen.epochs
    optimizer = torch.optim.AdamW(
        trainable, lr=chosen.learning_rate, weight_decay=chosen.weight_decay
    )
    scheduler = get_scheduler(
        chosen.schedule,
        optimizer,
        num_warmup_steps=round(chosen.warmup_ratio * total),
        num_training_steps=total,
    )
    references = _reference_log_probs(model, examples, objective, pad_id=pad_id, chosen=chosen)
    model.train()
    history: list[tuple[float, float]] = []
    steps, stopped = 0, False
    for _ in range(chosen.epochs):
        order = torch.randperm(len(examples), generator=generator).tolist()
        means = _Means()
        for step in _steps(order, chosen):
            for batch in _batches(examples, step, size=chosen.batch_size, pad_id=pad_id):
                on_device = batch.to(trainable[0].device)
                reference = None if references is None else references[list(batch.indices)]
                inputs = objective_inputs(
                    model, on_device, objective, reference_log_probs=reference
                )
                loss = objective(inputs)
                (loss * len(batch.indices) / len(step)).backward()  # type: ignore[no-untyped-call]
                with torch.no_grad():
                    answer = mean_token_loss(inputs.logits, inputs.labels)
                means.add(loss.item(), answer.item(), len(batch.indices))
            norm = torch.nn.utils.clip_grad_norm_(trainable, chosen.max_grad_norm)
            if not (math.isfinite(means.loss) and bool(norm.isfinite())):
                raise RunError(
                    f"the loss is not finite at step {steps + 1} ({means.loss}); lower the "
                    f"learning rate ({chosen.learning_rate:g}) or stop earlier"
                )
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            steps += 1
            if progress is not None:
                progress(steps, total)
        history.append((means.loss, means.answer_loss))
        if chosen.stop_at_loss is not None and means.answer_loss >= chosen.stop_at_loss:
            stopped = True
            break
    return TrainingFacts(
        steps=steps,
        epochs=len(history),
        first_loss=history[0][0],
        last_loss=history[-1][0],
        answer_loss=history[-1][1],
        stopped_early=stopped,
    )


class _Means:
    """Running means over the sequences of an epoch."""

    def __init__(self) -> None:
        self._loss = self._answer_loss = 0.0
        self._count = 0

    def add(self, loss: float, answer_loss: float, count: int) -> None:
        self._loss += loss * count
        self._answer_loss += answer_loss * count
        self._count += count

    @property
    def loss(self) -> float:
        return self._loss / self._count

    @property
    def answer_loss(self) -> float:
        return self._answer_loss / self._count


def _steps(order: list[int], chosen: TrainingSettings) -> Iterator[list[int]]:
    size = chosen.batch_size * chosen.gradient_accumulation
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _batches(
    examples: Sequence[Example], indices: list[int], *, size: int, pad_id: int
) -> Iterator[Batch]:
    for start in range(0, len(indices), size):
        part = indices[start : start + size]
        yield collate([examples[i] for i in part], pad_id=pad_id, indices=part)


def _reference_log_probs(
    model: torch.nn.Module,
    examples: Sequence[Example],
    objective: Objective,
    *,
    pad_id: int,
    chosen: TrainingSettings,
) -> Tensor | None:
    """Log p(y | x) of every example under the starting model, once; (N,) float32.

    A fresh adapter has B = 0, so the adapted model before its first step is the reference.
    """
    if not objective.needs_reference:
        return None
    model.eval()
    device = next(model.parameters()).device
    parts = []
    with torch.no_grad():
        for batch in _batches(
            examples, list(range(len(examples))), size=chosen.batch_size, pad_id=pad_id
        ):
            parts.append(sequence_log_probs(*aligned_logits(model, batch.to(device))))
    return torch.cat(parts)

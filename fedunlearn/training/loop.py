"""The training loop of a client: one objective, one adapter, one seed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import get_scheduler

from fedunlearn.data.encoding import Batch, Example, collate
from fedunlearn.errors import RunError
from fedunlearn.objectives import Objective
from fedunlearn.objectives.likelihood import mean_token_loss, sequence_log_probs
from fedunlearn.progress import Progress
from fedunlearn.settings import settings
from fedunlearn.training.forward import aligned_logits, objective_inputs


@settings
class TrainingSettings:
    """How a client of one role trains its adapter.

    Attributes:
        objective: name and hyperparameters, e.g. ``{name: npo, beta: 0.1}``.
        learning_rate: peak rate of AdamW.
        epochs: passes over the client's data, at most.
        batch_size: sequences a forward pass.
        gradient_accumulation: forward passes an optimiser step. Each weighs as much as it has
            sequences, so a loss that is a mean over tokens equals that of one large batch only
            where the answers are equally long.
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
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must be >= 0, got {self.weight_decay}")
        if self.stop_at_loss is not None and self.stop_at_loss <= 0:
            raise ValueError(f"stop_at_loss must be > 0 or null, got {self.stop_at_loss}")
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
    *,
    chosen: TrainingSettings,
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
        progress: called after every optimiser step with (steps done, steps at most).

    Raises:
        RunError: the loss is not finite; the text says at which step.
    """
    data = _Data(examples, chosen, pad_id, device=next(model.parameters()).device)
    total = data.steps_an_epoch * chosen.epochs
    optimizer = _Optimizer(model, chosen, total)
    learner = _Learner(model, objective, _reference_log_probs(model, objective, data))
    model.train()
    epochs: list[_Means] = []
    while len(epochs) < chosen.epochs and not _gone(epochs, chosen):
        epochs.append(_Means())
        for step in data.steps(generator):
            learner.learn(data.batches(step), len(step), epochs[-1])
            optimizer.step(epochs[-1].loss)
            if progress is not None:
                progress(optimizer.steps, total)
    return TrainingFacts(
        steps=optimizer.steps,
        epochs=len(epochs),
        first_loss=epochs[0].loss,
        last_loss=epochs[-1].loss,
        answer_loss=epochs[-1].answer_loss,
        stopped_early=_gone(epochs, chosen),
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


def _gone(epochs: Sequence[_Means], chosen: TrainingSettings) -> bool:
    """Whether the last epoch showed that the answers are forgotten."""
    if chosen.stop_at_loss is None or not epochs:
        return False
    return epochs[-1].answer_loss >= chosen.stop_at_loss


@dataclass(frozen=True)
class _Data:
    """The examples, cut into optimiser steps and forward passes."""

    examples: Sequence[Example]
    chosen: TrainingSettings
    pad_id: int
    device: torch.device

    @property
    def steps_an_epoch(self) -> int:
        return math.ceil(len(self.examples) / self._step_size)

    @property
    def _step_size(self) -> int:
        return self.chosen.batch_size * self.chosen.gradient_accumulation

    def steps(self, generator: torch.Generator) -> Iterator[list[int]]:
        """Yield the examples of each step of one epoch, in an order drawn anew."""
        order: list[int] = torch.randperm(len(self.examples), generator=generator).tolist()
        yield from _parts(order, self._step_size)

    def batches(self, indices: Sequence[int]) -> Iterator[Batch]:
        """Yield these examples in padded batches."""
        for part in _parts(indices, self.chosen.batch_size):
            batch = collate([self.examples[i] for i in part], pad_id=self.pad_id, indices=part)
            yield batch.to(self.device)


def _parts(indices: Sequence[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(indices), size):
        yield list(indices[start : start + size])


class _Optimizer:
    """AdamW on what requires a gradient, with its schedule and clipping; counts its steps."""

    def __init__(self, model: torch.nn.Module, chosen: TrainingSettings, total: int) -> None:
        self.steps = 0
        self._chosen = chosen
        self._trainable = [p for p in model.parameters() if p.requires_grad]
        self._adamw = torch.optim.AdamW(
            self._trainable, lr=chosen.learning_rate, weight_decay=chosen.weight_decay
        )
        self._schedule = get_scheduler(
            # the plain "constant" of transformers has no warm-up
            "constant_with_warmup" if chosen.schedule == "constant" else chosen.schedule,
            self._adamw,
            num_warmup_steps=round(chosen.warmup_ratio * total),
            num_training_steps=total,
        )

    def step(self, loss: float) -> None:
        """Follow the gradients at hand, then drop them.

        Raises:
            RunError: the loss or a gradient is not finite; nothing has moved.
        """
        norm = torch.nn.utils.clip_grad_norm_(self._trainable, self._chosen.max_grad_norm)
        if not (math.isfinite(loss) and bool(norm.isfinite())):
            raise RunError(
                f"the loss is not finite at step {self.steps + 1} ({loss}); lower the "
                f"learning rate ({self._chosen.learning_rate:g}) or stop earlier"
            )
        self._adamw.step()
        self._schedule.step()
        self._adamw.zero_grad(set_to_none=True)
        self.steps += 1


@dataclass(frozen=True)
class _Learner:
    """The forward and backward passes; ``references`` are those of the objective, (N,)."""

    model: torch.nn.Module
    objective: Objective
    references: Tensor | None

    def learn(self, batches: Iterator[Batch], count: int, means: _Means) -> None:
        """Accumulate the gradient of one step of ``count`` sequences."""
        for batch in batches:
            indices = list(batch.indices)
            reference = None if self.references is None else self.references[indices]
            inputs = objective_inputs(
                self.model, batch, self.objective, reference_log_probs=reference
            )
            loss = self.objective(inputs)
            (loss * len(indices) / count).backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                answer = mean_token_loss(inputs.logits, inputs.labels)
            means.add(loss.item(), answer.item(), len(indices))


@torch.no_grad()
def _reference_log_probs(
    model: torch.nn.Module, objective: Objective, data: _Data
) -> Tensor | None:
    """Log p(y | x) of every example under the starting model, once; (N,) float32.

    A fresh adapter has B = 0, so the adapted model before its first step is the reference.
    """
    if not objective.needs_reference:
        return None
    model.eval()
    batches = data.batches(range(len(data.examples)))
    return torch.cat([sequence_log_probs(*aligned_logits(model, batch)) for batch in batches])

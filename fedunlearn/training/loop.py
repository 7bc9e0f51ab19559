"""The training loop of a client: one objective, one adapter, one seed."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from itertools import islice
from typing import Any, Literal

import torch
from transformers import get_scheduler

from fedunlearn.data.encoding import Example
from fedunlearn.objectives import Objective
from fedunlearn.progress import Progress
from fedunlearn.settings import settings
from fedunlearn.training.batches import Step, TrainingData
from fedunlearn.training.checkpoints import Checkpoints, State
from fedunlearn.training.divergence import Guard
from fedunlearn.training.learner import Learner, StepLosses
from fedunlearn.training.saving_memory import OptimizerName, checkpointing, make_adamw


@settings
class TrainingSettings:
    """How a client of one role trains its adapter.

    Attributes:
        objective: name and hyperparameters, e.g. ``{name: npo, beta: 0.1}``.
        learning_rate: peak rate of AdamW.
        epochs: passes over the client's data, at most.
        batch_size: sequences a forward pass.
        gradient_accumulation: forward passes an optimiser step. Each divides its sums by the
            sequences or tokens of the whole step, so they add up to one large batch.
        warmup_ratio: share of the steps over which the rate rises from 0.
        schedule: of the rate after the warm-up.
        weight_decay: of AdamW, on the adapter's weights.
        max_grad_norm: gradients are clipped to this norm.
        max_length: tokens a sequence is truncated to.
        optimizer: ``adamw`` of PyTorch; or of bitsandbytes, on CUDA only, with moments in 8 bits
            (``adamw_8bit``) or moved to the host when memory runs out (``paged_adamw_8bit``,
            ``paged_adamw_32bit``).
        gradient_checkpointing: keep no activations inside the model's blocks and compute them
            again in the backward pass: less memory, a third more time, the same gradients.
        stop_at_loss: a forget client ends with the first epoch whose mean loss on its answers,
            in nats per token, is at least this: what it holds is gone. ``None`` never stops.
        diverged_at_loss: training has diverged once the mean loss of a step on the client's
            data, or on what a forget client keeps, in nats per token, is above this, or is not
            finite. The last good adapter is kept, and the summary says so. 50 is four times
            the loss of a uniform guess among 260,000 tokens. ``None``: only a loss that is not
            finite counts.
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
    optimizer: OptimizerName = "adamw"
    gradient_checkpointing: bool = False
    stop_at_loss: float | None = None
    diverged_at_loss: float | None = 50.0

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
        if self.diverged_at_loss is not None and self.diverged_at_loss <= 0:
            raise ValueError(f"diverged_at_loss must be > 0 or null, got {self.diverged_at_loss}")
        if not 0 <= self.warmup_ratio < 1:
            raise ValueError(f"warmup_ratio must be in [0, 1), got {self.warmup_ratio}")


@dataclass(frozen=True)
class TrainingFacts:
    """What happened while training.

    Attributes:
        steps: optimiser steps that made the adapter.
        epochs: epochs begun.
        first_loss: the objective's mean over the first epoch.
        last_loss: the objective's mean over the last epoch.
        answer_loss: mean loss on the answers over the last epoch, nats per token.
        stopped_early: ``stop_at_loss`` was reached.
        diverged_at_step: step whose loss was not finite or out of bounds, counted from 1; the
            adapter is the one whose loss was last seen to be good, and the means above leave
            the bad loss out. ``None``: training did not diverge.
        resumed_at_step: steps that an earlier process had done; ``None``: this one did all.
    """

    steps: int
    epochs: int
    first_loss: float
    last_loss: float
    answer_loss: float
    stopped_early: bool
    diverged_at_step: int | None = None
    resumed_at_step: int | None = None


def train(
    model: torch.nn.Module,
    examples: Sequence[Example],
    objective: Objective,
    *,
    chosen: TrainingSettings,
    pad_id: int,
    generator: torch.Generator,
    preferred: Sequence[Example] = (),
    retain: Sequence[Example] = (),
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainingFacts:
    """Train the parameters of ``model`` that require a gradient.

    Args:
        model: in place; only its trainable parameters change.
        examples: the client's data.
        objective: already bound to its randomness.
        chosen: rates, sizes and when to stop.
        pad_id: token id that fills short rows.
        generator: draws the order of the examples.
        preferred: the preferred answer to each example, where the objective reads them.
        retain: records a forget client keeps, where the objective reads them.
        progress: called after every optimiser step with (steps done, steps at most).
        checkpoints: where to go on from, and where to keep how far it is. What comes of it is
            the same, on the CPU bit for bit, as of one uninterrupted training.

    Raises:
        InputError: the optimiser needs CUDA or a package that is not here.
        RunError: training diverged before any step was seen to be good; the text says at which
            step.
        ValueError: the objective reads preferred answers or retained records, and has none.
    """
    _check_passes(objective, examples, preferred=preferred, retain=retain)
    device = next(model.parameters()).device
    data = TrainingData(examples, preferred, retain, chosen, pad_id, device)
    optimizer = _Optimizer(model, chosen, data.steps_an_epoch * chosen.epochs)
    run = _Run(
        data,
        Learner(model, objective, data),
        optimizer,
        Guard(optimizer.trainable, chosen.diverged_at_loss, chosen.learning_rate),
        progress,
        checkpoints,
    )
    model.train()
    resumed = run.resume()
    with checkpointing(model, on=chosen.gradient_checkpointing):
        for number, steps in enumerate(islice(data.epochs(generator), chosen.epochs), 1):
            if not run.epoch(number, steps) or _gone(run.epochs[:number], chosen):
                break
        run.finish()
    seen = [epoch for epoch in run.epochs if epoch.count]
    return TrainingFacts(
        steps=optimizer.steps - run.guard.undone,
        epochs=len(run.epochs),
        first_loss=seen[0].loss,
        last_loss=seen[-1].loss,
        answer_loss=seen[-1].answer_loss,
        stopped_early=run.guard.diverged_at_step is None and _gone(seen, chosen),
        diverged_at_step=run.guard.diverged_at_step,
        resumed_at_step=resumed,
    )


def _check_passes(
    objective: Objective,
    examples: Sequence[Example],
    *,
    preferred: Sequence[Example],
    retain: Sequence[Example],
) -> None:
    if objective.needs_preferred and len(preferred) != len(examples):
        raise ValueError(
            f"the objective needs a preferred answer to each of {len(examples)} examples, got "
            f"{len(preferred)}"
        )
    if objective.needs_retain and not retain:
        raise ValueError("the objective has a retain term, but there are no retained records")


@dataclass
class _Means:
    """Running means over the sequences of an epoch."""

    total: float = 0.0
    answer_total: float = 0.0
    count: int = 0

    def add(self, losses: StepLosses, count: int) -> None:
        self.total += losses.loss * count
        self.answer_total += losses.answer * count
        self.count += count

    @property
    def loss(self) -> float:
        return self.total / self.count

    @property
    def answer_loss(self) -> float:
        return self.answer_total / self.count


def _gone(epochs: Sequence[_Means], chosen: TrainingSettings) -> bool:
    """Whether the last epoch showed that the answers are forgotten."""
    if chosen.stop_at_loss is None or not epochs:
        return False
    return epochs[-1].answer_loss >= chosen.stop_at_loss


class _Optimizer:
    """AdamW on what requires a gradient, with its schedule and clipping; counts its steps."""

    def __init__(self, model: torch.nn.Module, chosen: TrainingSettings, total: int) -> None:
        self.steps = 0
        self.total = total
        self.trainable = [p for p in model.parameters() if p.requires_grad]
        self._max_grad_norm = chosen.max_grad_norm
        self._adamw = make_adamw(
            chosen.optimizer,
            self.trainable,
            learning_rate=chosen.learning_rate,
            weight_decay=chosen.weight_decay,
        )
        self._schedule = get_scheduler(
            # the plain "constant" of transformers has no warm-up
            "constant_with_warmup" if chosen.schedule == "constant" else chosen.schedule,
            self._adamw,
            num_warmup_steps=round(chosen.warmup_ratio * total),
            num_training_steps=total,
        )

    def step(self) -> bool:
        """Follow the gradients at hand, then drop them; False where they are not finite."""
        norm = torch.nn.utils.clip_grad_norm_(self.trainable, self._max_grad_norm)
        finite = bool(norm.isfinite())
        if finite:
            self._adamw.step()
            self._schedule.step()
            self.steps += 1
        self._adamw.zero_grad(set_to_none=True)
        return finite

    def state(self) -> State:
        """What the next step depends on."""
        return {
            "steps": self.steps,
            "weights": [weight.detach() for weight in self.trainable],
            "adamw": self._adamw.state_dict(),
            "schedule": self._schedule.state_dict(),
        }

    def restore(self, state: State) -> None:
        """Go back to a state, of the same weights."""
        self.steps = state["steps"]
        with torch.no_grad():
            for weight, saved in zip(self.trainable, state["weights"], strict=True):
                weight.copy_(saved)
        self._adamw.load_state_dict(state["adamw"])
        self._schedule.load_state_dict(state["schedule"])


@dataclass
class _Run:
    """One training, step by step, until it ends or diverges.

    A resumed one draws the same order again from its seed, and passes over what was done.
    """

    data: TrainingData
    learner: Learner
    optimizer: _Optimizer
    guard: Guard
    progress: Progress | None
    checkpoints: Checkpoints | None
    epochs: list[_Means] = field(default_factory=list)
    _done_before: int = 0
    _saved_at: int = 0
    _last: Step | None = None

    def resume(self) -> int | None:
        """Take up the last checkpoint; return its number of steps, ``None`` without one."""
        saved = self.checkpoints.load() if self.checkpoints else None
        if saved is None:
            return None
        self.optimizer.restore(saved["optimizer"])
        self.guard.restore(saved["good"])
        self.epochs = [_Means(*means) for means in saved["epochs"]]
        _set_chance(saved["chance"], self.data.device)
        self._done_before = self._saved_at = self.optimizer.steps
        return self._saved_at

    def _save(self) -> None:
        if self.checkpoints is None or self._saved_at == self.optimizer.steps:
            return
        self.checkpoints.save(
            {
                "optimizer": self.optimizer.state(),
                "good": self.guard.good,
                "epochs": [list(astuple(means)) for means in self.epochs],
                "chance": _chance(self.data.device),
            }
        )
        self._saved_at = self.optimizer.steps

    def epoch(self, number: int, steps: Iterator[Step]) -> bool:
        """Take the steps of an epoch, counted from 1; False where training diverged."""
        if number > len(self.epochs):
            self.epochs.append(_Means())
        return all(self._step(step, self.epochs[number - 1]) for step in steps)

    def _step(self, step: Step, means: _Means) -> bool:
        if self._done_before > 0:
            self._done_before -= 1
            self._last = step
            return True
        number = self.optimizer.steps + 1
        losses = self.learner.learn(self.data.parts(step))
        if not self.guard.approves(losses, number):
            return False
        means.add(losses, len(step.main))
        if not self.optimizer.step():
            return self.guard.gradient_is_not_finite(number)
        self._last = step
        if self.progress is not None:
            self.progress(self.optimizer.steps, self.optimizer.total)
        if self.checkpoints is not None and self.checkpoints.due(self.optimizer.steps):
            self._save()
        return True

    def finish(self) -> None:
        """Look at what the last step made, which no later step has."""
        if self.guard.diverged_at_step is None and self._last is not None:
            self._save()  # what follows the training may be interrupted, too
            losses = self.learner.look(self.data.parts(self._last))
            self.guard.approves(losses, self.optimizer.steps + 1)


def _chance(device: torch.device) -> list[torch.Tensor]:
    """State of the generators that dropout draws from."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


def _set_chance(states: list[torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)

"""Forward and backward passes of one objective, with reference values computed once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedunlearn.data.encoding import Example
from fedunlearn.objectives import Objective, ObjectiveInputs
from fedunlearn.objectives.likelihood import sequence_log_probs
from fedunlearn.roles import Role
from fedunlearn.training.batches import Part, Pass, TrainingData, all_batches
from fedunlearn.training.forward import aligned_logits, objective_inputs
from fedunlearn.training.starting_model import StartingModel


@dataclass(frozen=True)
class StepLosses:
    """What one optimiser step saw before it was taken.

    Attributes:
        loss: of the objective, over the whole step.
        answer: mean loss on the client's data, nats per token.
        retained: likewise on what a forget client keeps; 0 where it keeps nothing.
    """

    loss: float
    answer: float
    retained: float

    def is_good(self, bound: float | None) -> bool:
        """Whether all are finite, and those in nats per token within the bound."""
        if not all(map(math.isfinite, (self.loss, self.answer, self.retained))):
            return False
        return bound is None or max(self.answer, self.retained) <= bound


class Learner:
    """Runs the passes an objective asks for.

    Args:
        model: under training, before its first step.
        objective: bound to its randomness.
        data: what reference log-probabilities are computed on, once and for all.
    """

    def __init__(self, model: torch.nn.Module, objective: Objective, data: TrainingData) -> None:
        self._model = model
        self._objective = objective
        self._start = StartingModel(model, read_again=bool(objective.teaches))
        wanted = objective.needs_reference
        self._references = _log_probs(self._start, data, data.examples) if wanted else None
        self._preferred = _log_probs(self._start, data, data.preferred) if wanted else None

    def learn(self, parts: Iterator[Part]) -> StepLosses:
        """Accumulate the gradient of one step."""
        seen = [self._seen(part, backward=True) for part in parts]
        return _total(seen)

    @torch.no_grad()
    def look(self, parts: Iterator[Part]) -> StepLosses:
        """Compute the losses of one step, with dropout off, and nothing else."""
        training = self._model.training
        self._model.eval()
        try:
            return _total([self._seen(part, backward=False) for part in parts])
        finally:
            self._model.train(training)

    def _seen(self, part: Part, *, backward: bool) -> StepLosses:
        inputs = self._inputs(part)
        loss = self._objective(inputs)
        if backward:
            loss.backward()  # type: ignore[no-untyped-call]
        retained = 0.0 if inputs.retain is None else _token_loss(inputs.retain)
        return StepLosses(loss.item(), _token_loss(inputs), retained)

    def _inputs(self, part: Part) -> ObjectiveInputs:
        main = self._run(part.main, self._objective.role, self._references)
        if part.preferred is not None:
            preferred = self._run(part.preferred, self._objective.role, self._preferred)
            main = replace(main, preferred=preferred)
        if part.retain is not None:
            main = replace(main, retain=self._run(part.retain, "retain", None))
        return main

    def _run(self, one: Pass, role: Role, references: Tensor | None) -> ObjectiveInputs:
        return objective_inputs(
            self._model,
            one.batch,
            self._objective,
            reference_log_probs=None if references is None else references[list(one.batch.indices)],
            counts=one.counts,
            start=self._start if role in self._objective.teaches else None,
        )


def _token_loss(inputs: ObjectiveInputs) -> float:
    """This batch's part of the step's mean loss, nats per token."""
    return inputs.reduce(-inputs.token_log_probs.detach(), "token").item()


def _total(parts: Sequence[StepLosses]) -> StepLosses:
    """Add up the parts of a step; each is divided by the counts of the whole."""
    return StepLosses(
        sum(part.loss for part in parts),
        sum(part.answer for part in parts),
        sum(part.retained for part in parts),
    )


@torch.no_grad()
def _log_probs(
    start: StartingModel, data: TrainingData, examples: Sequence[Example]
) -> Tensor | None:
    """Log p(y | x) of every example under the starting model, once; (N,) float32."""
    if not examples:
        return None
    with start.running() as model:
        return torch.cat(
            [sequence_log_probs(*aligned_logits(model, one)) for one in all_batches(data, examples)]
        )

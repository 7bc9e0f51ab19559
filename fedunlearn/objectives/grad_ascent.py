"""Gradient ascent (Jang et al., 2023): maximise the loss on what must be forgotten."""

from torch import Tensor

from fedunlearn.objectives.interface import OBJECTIVES, Objective, ObjectiveInputs
from fedunlearn.objectives.likelihood import mean_token_loss
from fedunlearn.settings import settings


@OBJECTIVES.register("grad_ascent")
@settings
class GradAscent(Objective):
    """Negated cross-entropy, in nats per target token; unbounded below, so stop it early."""

    def __call__(self, inputs: ObjectiveInputs) -> Tensor:
        """Minus the mean loss over the batch's target tokens."""
        return -mean_token_loss(inputs.logits, inputs.labels)

"""Stops a training that has diverged, and goes back to the last adapter seen to be good."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedunlearn.errors import RunError
from fedunlearn.training.learner import StepLosses


class Guard:
    """Keeps the weights whose loss was last seen to be good.

    A step's loss belongs to the weights before it. While it is good these weights are copied;
    when it is not, they are put back, which undoes the step that led there.

    Args:
        trainable: the weights under training; one copy of them is kept.
        bound: loss in nats per token above which training has diverged; ``None``: no bound.
        learning_rate: for the remedy in errors.

    Attributes:
        diverged_at_step: the first bad step, from 1; ``None`` while there is none.
        undone: optimiser steps that were taken back, 0 or 1.
        good: copies of the weights that were last seen to be good; empty before the first step.
    """

    def __init__(
        self, trainable: Sequence[Tensor], bound: float | None, learning_rate: float
    ) -> None:
        self.diverged_at_step: int | None = None
        self.undone = 0
        self._trainable = trainable
        self._bound = bound
        self._learning_rate = learning_rate
        self.good: list[Tensor] = []

    def restore(self, good: Sequence[Tensor]) -> None:
        """Take over what an earlier process had seen to be good."""
        pairs = zip(self._trainable, good, strict=True)
        self.good = [saved.to(weight.device) for weight, saved in pairs]

    def approves(self, losses: StepLosses, step: int) -> bool:
        """Keep the weights at hand if their losses are good, else put the last good ones back.

        Raises:
            RunError: they are not, and no step before was good, so nothing was learned.
        """
        if losses.is_good(self._bound):
            self.good = [weight.detach().clone() for weight in self._trainable]
            return True
        if step <= 2:  # the last good weights are those of a fresh adapter, which does nothing
            raise RunError(self._text(losses, step))
        with torch.no_grad():
            for weight, good in zip(self._trainable, self.good, strict=True):
                weight.copy_(good)
        self.diverged_at_step, self.undone = step, 1
        return False

    def gradient_is_not_finite(self, step: int) -> bool:
        """Mark that a good loss had no finite gradient; the weights at hand stay.

        Raises:
            RunError: it was the first step, so nothing was learned.
        """
        if step == 1:
            raise RunError(f"the gradient is not finite at step {step}; {self._remedy}")
        self.diverged_at_step = step
        return False

    def _text(self, losses: StepLosses, step: int) -> str:
        if not losses.is_good(None):
            return f"the loss is not finite at step {step} ({losses.loss}); {self._remedy}"
        return (
            f"the loss is {max(losses.answer, losses.retained):.3g} nats per token at step {step}, "
            f"above diverged_at_loss ({self._bound:g}); {self._remedy}"
        )

    @property
    def _remedy(self) -> str:
        return (
            f"no step before it left a trained adapter; lower the learning rate "
            f"({self._learning_rate:g}) or stop earlier"
        )

"""Relearning: a few optimiser steps on a few rows, to see whether forgotten ones come back.

The attack of Hu et al. (2024, "Jogging the memory of unlearned LLMs", arXiv 2406.13356) and
Lynch et al. (2024, arXiv 2402.16835): what was only suppressed returns with far fewer steps than
it takes to learn it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import cast

import torch

from fedunlearn.data.encoding import Example
from fedunlearn.errors import RunError
from fedunlearn.models.adapters import LoraSettings, attached
from fedunlearn.models.loading import LoadedModel
from fedunlearn.objectives.retain_nll import RetainNLL
from fedunlearn.seeding import derive, generator
from fedunlearn.settings import settings
from fedunlearn.training.batches import TrainingData
from fedunlearn.training.learner import Learner
from fedunlearn.training.saving_memory import make_adamw

_MAX_NORM = 1.0


@settings
class RelearnSettings:
    """A short training on rows of the forget sets.

    Attributes:
        steps: optimiser steps after which the other rows are measured; 0, no step, always is.
        rows: rows of each forget set that are trained on, half of the set at most. They are
            measured in no stage, so that what comes back was not just taught.
        batch_size: rows a step.
        learning_rate: constant, of AdamW, gradients clipped to norm 1; 1e-3 for an adapter, about
            1e-5 for all weights of a large model.
        lora: the adapter that learns; ``None``: every weight learns, and a copy of all weights is
            kept in memory.
    """

    steps: tuple[int, ...] = (0, 1, 2, 5, 10, 20)
    rows: int = 8
    batch_size: int = 8
    learning_rate: float = 1e-3
    lora: LoraSettings | None = LoraSettings(rank=16, alpha=32, target_modules=("all-linear",))

    def __post_init__(self) -> None:
        if not self.steps or min(self.steps) < 0 or max(self.steps) == 0:
            raise ValueError(f"steps must be >= 0, one of them > 0, got {list(self.steps)}")
        if self.rows < 1 or self.batch_size < 1 or self.learning_rate <= 0:
            raise ValueError("rows and batch_size must be >= 1, learning_rate > 0")

    @property
    def gradient_accumulation(self) -> int:
        """One forward pass a step."""
        return 1


class Relearner:
    """A training that halts wherever it is looked at.

    Args:
        model: whose parameters that require a gradient learn.
        data: the rows.
        chosen: how.
        order: draws the order of the rows.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        data: TrainingData,
        chosen: RelearnSettings,
        order: torch.Generator,
    ) -> None:
        self.done = 0
        self._model, self._data = model, data
        self._learner = Learner(model, RetainNLL(), data)
        self._trainable = [one for one in model.parameters() if one.requires_grad]
        self._adamw = make_adamw(
            "adamw", self._trainable, learning_rate=chosen.learning_rate, weight_decay=0.0
        )
        self._steps = chain.from_iterable(data.epochs(order))

    def advance(self, to: int) -> None:
        """Train until ``to`` steps are done; the model is in evaluation mode afterwards.

        Raises:
            RunError: a gradient is not finite.
        """
        self._model.train()
        while self.done < to:
            self._learner.learn(self._data.parts(next(self._steps)))
            norm = torch.nn.utils.clip_grad_norm_(self._trainable, _MAX_NORM)
            if not bool(norm.isfinite()):
                raise RunError(
                    f"relearning diverged: step {self.done + 1} has a gradient that is not "
                    "finite; lower relearning.learning_rate"
                )
            self._adamw.step()
            self._adamw.zero_grad(set_to_none=True)
            self.done += 1
        self._model.eval()


@contextmanager
def relearning(
    base: LoadedModel, examples: Sequence[Example], chosen: RelearnSettings, *, seed: int
) -> Iterator[Relearner]:
    """Let ``base`` learn for the length of the block; its exact bits are restored afterwards.

    Args:
        base: what it has learned shows in ``base.model`` itself.
        examples: the rows.
        chosen: how.
        seed: of the adapter and of the order of the rows.

    Raises:
        InputError: the adapter does not fit the model.
    """
    pad = cast(int, base.tokenizer.pad_token_id)
    data = TrainingData(examples, (), (), chosen, pad, base.device)
    with _learning(base, chosen.lora, seed=derive(seed, "relearning adapter")) as model:
        yield Relearner(model, data, chosen, generator(seed, "relearning order"))


@contextmanager
def _learning(
    base: LoadedModel, lora: LoraSettings | None, *, seed: int
) -> Iterator[torch.nn.Module]:
    if lora is not None:
        with attached(base.model, lora, seed=seed) as adapted:
            yield adapted
        return
    before = [(weight, weight.detach().clone()) for weight in base.model.parameters()]
    base.model.requires_grad_(True)
    try:
        yield base.model
    finally:
        base.model.requires_grad_(False).train(False)
        with torch.no_grad():
            for weight, original in before:
                weight.grad = None
                weight.copy_(original)

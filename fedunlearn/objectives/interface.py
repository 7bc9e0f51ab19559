"""What an objective sees and returns; one objective a file, pure tensor functions."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Optional

import torch
from torch import Tensor

from fedunlearn.objectives.likelihood import token_log_probs
from fedunlearn.objectives.reduction import Counts, Reduction, count
from fedunlearn.registry import Registry
from fedunlearn.roles import Role


@dataclass(frozen=True)
class ObjectiveInputs:
    """One forward pass over a batch of B sequences, already aligned for prediction.

    Attributes:
        logits: (B, T, V) float32; ``logits[:, t]`` predicts ``labels[:, t]``.
        labels: (B, T) int64, -100 where there is no target.
        reference_log_probs: (B,) float32, summed log-probabilities of each answer under the
            model the client started from; ``None`` unless the objective asks for it.
        hidden: (B, S, H) float32 with S = T + 1, output of the objective's ``hidden_layer``;
            ``None`` unless it names one.
        token_mask: (B, S) bool, true on real tokens.
        reference_logits: (B, T, V) float32, those of the starting model, without a gradient;
            ``None`` unless the objective asks for them.
        reference_hidden: (B, S, H) float32, likewise.
        preferred: the pass over the preferred answers to the same B questions; ``None`` unless
            the objective asks for them.
        retain: the pass over a batch of records to keep; ``None`` unless the objective asks.
        counts: denominators of the optimiser step this batch is a part of; ``None``: it is all
            of it.
    """

    logits: Tensor
    labels: Tensor
    reference_log_probs: Tensor | None = None
    hidden: Tensor | None = None
    token_mask: Tensor | None = None
    reference_logits: Tensor | None = None
    reference_hidden: Tensor | None = None
    preferred: Optional["ObjectiveInputs"] = None
    retain: Optional["ObjectiveInputs"] = None
    counts: Counts | None = None

    @cached_property
    def token_log_probs(self) -> Tensor:
        """Log p of each target token, (B, T) float32, 0 where there is none; computed once."""
        return token_log_probs(self.logits, self.labels)

    @property
    def sequence_log_probs(self) -> Tensor:
        """Log p(y | x) of each answer, a sum over its tokens, (B,) float32."""
        return self.token_log_probs.sum(-1)

    @property
    def denominators(self) -> Counts:
        """Counts of the whole step."""
        return self.counts or count(self.labels, self.token_mask)

    def reduce(self, token_values: Tensor, reduction: Reduction) -> Tensor:
        """Sum (B, T) values of target tokens and divide by the step's sequences or targets."""
        counts = self.denominators
        return token_values.sum() / (
            counts.sequences if reduction == "sequence" else counts.targets
        )

    def mean_over_sequences(self, values: Tensor) -> Tensor:
        """Sum (B,) values and divide by the step's sequences."""
        return values.sum() / self.denominators.sequences

    def reference(self, name: str) -> Tensor:
        """The starting model's summed log-probabilities, (B,).

        Raises:
            ValueError: they are missing; the text names the objective.
        """
        if self.reference_log_probs is None:
            raise ValueError(f"{name} needs the starting model's log-probabilities")
        return self.reference_log_probs


class Objective(ABC):
    """One training objective: a frozen ``@settings`` class whose call is the loss.

    The first line of the docstring is what ``fedunlearn list objectives`` prints.
    """

    role: ClassVar[Role] = "forget"
    needs_reference: ClassVar[bool] = False
    """Whether it reads summed log-probabilities of the starting model."""
    needs_preferred: ClassVar[bool] = False
    """Whether it reads a second pass, over preferred answers."""

    @property
    def needs_retain(self) -> bool:
        """Whether it reads a pass over records that a forget client keeps."""
        return False

    @property
    def teaches(self) -> frozenset[Role]:
        """Passes on which it reads the starting model's logits or hidden states."""
        return frozenset()

    @property
    def hidden_layer(self) -> int | None:
        """Index of the transformer block whose output the objective reads, if any."""
        return None

    def seed_key(self, client_id: str, domain: str) -> tuple[str, ...]:
        """Names from which the objective's own randomness is derived."""
        return (client_id, domain)

    def bind(self, generator: torch.Generator, hidden_size: int) -> "Objective":
        """Return the objective with its random parts drawn; most have none."""
        return self

    @abstractmethod
    def __call__(self, inputs: ObjectiveInputs) -> Tensor:
        """Return this batch's part of the step's loss, a float32 scalar to minimise."""


OBJECTIVES: Registry[Objective] = Registry("objective")

"""What an objective sees and returns; one objective a file, pure tensor functions."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

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
        hidden: (B, S, H) float32, output of the objective's ``hidden_layer``; ``None`` unless
            it names one.
        hidden_mask: (B, S) bool, true on real tokens.
    """

    logits: Tensor
    labels: Tensor
    reference_log_probs: Tensor | None = None
    hidden: Tensor | None = None
    hidden_mask: Tensor | None = None


class Objective(ABC):
    """One training objective: a frozen ``@settings`` class whose call is the loss.

    The first line of the docstring is what ``fedunlearn list objectives`` prints.
    """

    role: ClassVar[Role] = "forget"
    needs_reference: ClassVar[bool] = False

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
        """Return the scalar loss to minimise, float32."""


OBJECTIVES: Registry[Objective] = Registry("objective")

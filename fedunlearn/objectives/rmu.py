"""Representation misdirection (RMU; Li et al., 2024).

In FIRM a forget client optimises forgetting only; retention is the retain clients' and the
server's part. RMU's second term, on retained data, is ``retain_term: hidden``.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedunlearn.objectives.forgetting import ForgetObjective
from fedunlearn.objectives.interface import OBJECTIVES, ObjectiveInputs
from fedunlearn.settings import settings


@OBJECTIVES.register("rmu")
@settings
class RMU(ForgetObjective):
    """Steers one block's output on forget data towards a fixed random direction.

    Loss: mean over real tokens (pads take no part) of ``||h - c u||^2 / H`` with ``u`` uniform
    on [0, 1) and normalised to length 1, as in the RMU paper's code; ``c`` is ``steering``. The
    paper's formula has no division by H. open-unlearning counts answer tokens only and averages
    within each sequence first.

    Attributes:
        layer: index of the transformer block whose output is steered.
        steering: length ``c`` of the target; 20 in the RMU paper's Zephyr setting (6.5 in its
            first release).
        share: whose clients share ``u``: those of a ``domain`` (so that pooling adds up one
            direction; the default) or each ``client`` its own.
    """

    layer: int = 7
    steering: float = 20.0
    share: Literal["domain", "client"] = "domain"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layer < 0:
            raise ValueError(f"layer must be >= 0, got {self.layer}")

    @property
    def hidden_layer(self) -> int | None:
        """The steered block."""
        return self.layer

    def seed_key(self, client_id: str, domain: str) -> tuple[str, ...]:
        """The domain alone when its clients share the direction."""
        return (domain,) if self.share == "domain" else (client_id, domain)

    def bind(self, generator: torch.Generator, hidden_size: int) -> "SteeredRMU":
        """Draw the direction ``u``."""
        direction = torch.rand(hidden_size, generator=generator)
        return SteeredRMU(
            forget_weight=self.forget_weight,
            retain_term=self.retain_term,
            retain_weight=self.retain_weight,
            retain_reduction=self.retain_reduction,
            layer=self.layer,
            target=self.steering * direction / direction.norm(),
        )

    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """There is no loss before a direction is drawn.

        Raises:
            ValueError: always; call what :meth:`bind` returns.
        """
        raise ValueError("RMU steers towards a random direction: bind it to a generator first")


@dataclass(frozen=True, eq=False, kw_only=True)
class SteeredRMU(ForgetObjective):
    """RMU with its direction drawn.

    Attributes:
        layer: the steered block.
        target: ``c u``, shape (H,), float32.
    """

    layer: int
    target: Tensor

    @property
    def hidden_layer(self) -> int | None:
        """The steered block."""
        return self.layer

    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """Mean squared distance to the target over real tokens; scalar float32.

        Raises:
            ValueError: the hidden states are missing.
        """
        if inputs.hidden is None or inputs.token_mask is None:
            raise ValueError("RMU needs hidden states and their mask")
        target = self.target.to(inputs.hidden.device)
        distance = (inputs.hidden.float() - target).square().mean(-1)
        return distance[inputs.token_mask].sum() / inputs.denominators.tokens

"""Representation misdirection (RMU; Li et al., 2024), the forgetting term alone.

In FIRM a forget client optimises forgetting only; retention is the retain clients' and the
server's part, so RMU's second term, on retained data, does not appear here.
"""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from fedunlearn.objectives.interface import OBJECTIVES, Objective, ObjectiveInputs
from fedunlearn.settings import settings


@OBJECTIVES.register("rmu")
@settings
class RMU(Objective):
    """Steers one block's output on forget data towards a fixed random direction.

    Loss: mean over real tokens (pads take no part) of ``||h - c u||^2 / H`` with ``u`` uniform
    on [0, 1) and normalised to length 1, as in the RMU paper's code; ``c`` is ``steering``.

    Attributes:
        layer: index of the transformer block whose output is steered.
        steering: length ``c`` of the target; 20 in the RMU paper's Zephyr setting (6.5 in its
            first release).
        share: whose clients share ``u``: those of a ``domain`` (so that pooling adds up one
            direction; the default) or each ``client`` its own.
        control: the vector, drawn by :meth:`bind`; never set by hand.
    """

    layer: int = 7
    steering: float = 20.0
    share: Literal["domain", "client"] = "domain"
    control: tuple[float, ...] = ()

    @property
    def hidden_layer(self) -> int | None:
        """The steered block."""
        return self.layer

    def seed_key(self, client_id: str, domain: str) -> tuple[str, ...]:
        """The domain alone when its clients share the direction."""
        return (domain,) if self.share == "domain" else (client_id, domain)

    def bind(self, generator: torch.Generator, hidden_size: int) -> "RMU":
        """Draw the direction ``u``."""
        direction = torch.rand(hidden_size, generator=generator)
        return replace(self, control=tuple((direction / direction.norm()).tolist()))

    def __call__(self, inputs: ObjectiveInputs) -> Tensor:
        """Mean squared distance to the target over the batch's real tokens.

        Raises:
            ValueError: called before :meth:`bind`, or without hidden states.
        """
        if inputs.hidden is None or inputs.hidden_mask is None or not self.control:
            raise ValueError("RMU needs hidden states, their mask and a drawn control vector")
        target = self.steering * inputs.hidden.new_tensor(self.control)
        distance = (inputs.hidden.float() - target).square().mean(-1)
        return distance[inputs.hidden_mask].mean()

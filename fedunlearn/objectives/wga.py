"""Weighted gradient ascent (WGA; Wang et al., 2025), in the form of the MPU paper's eq. 110."""

from torch import Tensor

from fedunlearn.objectives.forgetting import ForgetObjective
from fedunlearn.objectives.interface import OBJECTIVES, ObjectiveInputs
from fedunlearn.objectives.reduction import Reduction
from fedunlearn.settings import settings


@OBJECTIVES.register("wga")
@settings
class WGA(ForgetObjective):
    """Gradient ascent that spares tokens already gone.

    ``E sum_k w_k log p(y_k)`` with ``w_k = p ** beta``, p of the token; the weights take no
    gradient. At beta = 0 it is gradient ascent.

    Attributes:
        beta: how fast forgotten tokens lose weight, >= 0; 1 in open-unlearning.
        reduction: ``sequence``: sums over each sequence (eq. 110); ``token``: the mean over
            tokens, which open-unlearning takes.
    """

    beta: float = 1.0
    reduction: Reduction = "sequence"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta < 0:
            raise ValueError(f"beta must be >= 0, got {self.beta}")

    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """Weighted log-probability of the target tokens, reduced; scalar float32."""
        log_probs = inputs.token_log_probs
        return inputs.reduce(log_probs.detach().exp() ** self.beta * log_probs, self.reduction)

"""Saturation and importance weights (SatImp; Yang et al., 2025; MPU, B.3.7, eq. 110-111)."""

import torch
from torch import Tensor

from fedunlearn.objectives.forgetting import ForgetObjective
from fedunlearn.objectives.interface import OBJECTIVES, ObjectiveInputs
from fedunlearn.objectives.reduction import Reduction
from fedunlearn.settings import settings


@OBJECTIVES.register("satimp")
@settings
class SatImp(ForgetObjective):
    """Gradient ascent that spares tokens already gone and tokens that are near certain.

    ``E sum_k w_k log p(y_k)`` with ``w_k = p ** beta1 * (1 - p) ** beta2``, p of the token. The
    weights take no gradient.

    Attributes:
        beta1: how fast forgotten tokens lose weight, >= 0; 5 in open-unlearning.
        beta2: how fast certain tokens lose weight, >= 0; 1 in open-unlearning.
        reduction: ``sequence``: sums over each sequence (eq. 110); ``token``: the mean over
            tokens, which open-unlearning takes.
    """

    beta1: float = 5.0
    beta2: float = 1.0
    reduction: Reduction = "sequence"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta1 < 0 or self.beta2 < 0:
            got = f"got {self.beta1} and {self.beta2}"
            raise ValueError(f"beta1 and beta2 must be >= 0, {got}")

    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """Weighted log-probability of the target tokens, reduced; scalar float32."""
        log_probs = inputs.token_log_probs
        fixed = log_probs.detach()
        # 1 - p as -expm1(log p), which keeps its digits where p is nearly 1
        weights = fixed.exp() ** self.beta1 * (-torch.expm1(fixed)) ** self.beta2
        return inputs.reduce(weights * log_probs, self.reduction)

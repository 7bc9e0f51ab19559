"""Simple negative preference optimisation (Fan et al., 2024; MPU, appendix B.3.5, eq. 107)."""

from typing import Literal

from torch import Tensor
from torch.nn.functional import softplus

from fedunlearn.objectives.forgetting import ForgetObjective
from fedunlearn.objectives.interface import OBJECTIVES, ObjectiveInputs
from fedunlearn.objectives.likelihood import IGNORED
from fedunlearn.settings import settings


@OBJECTIVES.register("simnpo")
@settings
class SimNPO(ForgetObjective):
    """NPO without a reference model, on the mean log-probability of the answer's tokens.

    ``-2 / beta * E log sigmoid(-beta / |y| log p(y | x) - gamma)``. With 4 tokens, log p = -8,
    beta = 2.5 and gamma = 0 it is 0.00537; with gamma = 1 it is 0.0145.

    Attributes:
        beta: sharpness; 4.5 in open-unlearning.
        gamma: margin, >= 0; 0 in open-unlearning, which calls it delta.
        margin: where it stands: ``outside`` of beta's bracket as in eq. 107, or ``inside``,
            ``beta (-log p / |y| - gamma)``, as in open-unlearning (0.0631 in the example).
    """

    beta: float = 4.5
    gamma: float = 0.0
    margin: Literal["outside", "inside"] = "outside"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta <= 0 or self.gamma < 0:
            got = f"got {self.beta} and {self.gamma}"
            raise ValueError(f"beta must be > 0 and gamma >= 0, {got}")

    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """Mean over the sequences; scalar float32."""
        lengths = (inputs.labels != IGNORED).sum(-1).clamp(min=1)
        mean_log_probs = inputs.sequence_log_probs / lengths
        gamma = self.gamma * (self.beta if self.margin == "inside" else 1.0)
        losses = softplus(self.beta * mean_log_probs + gamma)
        return 2.0 / self.beta * inputs.mean_over_sequences(losses)

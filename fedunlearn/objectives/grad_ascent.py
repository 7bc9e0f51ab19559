"""Gradient ascent (Jang et al., 2023; MPU paper, appendix B.3.1, eq. 103)."""

from torch import Tensor

from fedunlearn.objectives.forgetting import ForgetObjective
from fedunlearn.objectives.interface import OBJECTIVES, ObjectiveInputs
from fedunlearn.objectives.reduction import Reduction
from fedunlearn.settings import settings


@OBJECTIVES.register("grad_ascent")
@settings
class GradAscent(ForgetObjective):
    """Negated cross-entropy on what must be forgotten; unbounded below, so stop it early.

    ``E log p(y | x)``, with sums over the tokens of each sequence, in nats.

    Attributes:
        reduction: ``sequence``: those sums, averaged over sequences (eq. 103); ``token``: the
            mean over tokens, which open-unlearning takes.
    """

    reduction: Reduction = "sequence"

    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """Log-probability of the batch's target tokens, reduced; scalar float32."""
        return inputs.reduce(inputs.token_log_probs, self.reduction)

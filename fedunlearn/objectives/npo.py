"""Negative preference optimisation (Zhang et al., 2024; MPU paper, appendix B.3.4, eq. 106)."""

from torch import Tensor
from torch.nn.functional import softplus

from fedunlearn.objectives.against_reference import AgainstReference
from fedunlearn.objectives.interface import OBJECTIVES, ObjectiveInputs
from fedunlearn.settings import settings


@OBJECTIVES.register("npo")
@settings
class NPO(AgainstReference):
    """Pushes the answer's probability below the starting model's, ever more gently.

    ``2 / beta * mean log(1 + (p / p_ref) ** beta)`` with p the probability of the whole answer:
    sums of token log-probabilities, not means. At p = p_ref and beta = 0.1 it is 13.863.

    Attributes:
        beta: sharpness of the preference; as it falls to 0 NPO turns into gradient ascent. 0.1
            in open-unlearning.
    """

    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """Mean over the sequences; scalar float32.

        Raises:
            ValueError: the reference log-probabilities are missing.
        """
        loss = softplus(self.beta * self.log_ratio(inputs))
        return 2.0 / self.beta * inputs.mean_over_sequences(loss)

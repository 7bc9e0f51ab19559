"""Direct preference optimisation (Rafailov et al., 2023; MPU paper, appendix B.3.3, eq. 105)."""

from torch import Tensor
from torch.nn.functional import softplus

from fedunlearn.objectives.against_reference import AgainstReference
from fedunlearn.objectives.interface import OBJECTIVES, ObjectiveInputs
from fedunlearn.settings import settings


@OBJECTIVES.register("dpo")
@settings
class DPO(AgainstReference):
    """Prefers a refusal, such as "I don't know", to the answer that must go.

    ``-E log sigmoid(beta (r(y_w) - r(y_l)))`` with ``r(y) = log p(y | x) - log p_ref(y | x)``,
    sums over tokens; ``y_l`` is the answer, ``y_w`` the preferred one. At p = p_ref it is
    log 2 = 0.693.

    Attributes:
        beta: sharpness of the preference; 0.1 in open-unlearning.
        two_over_beta: multiply by 2 / beta, as open-unlearning does; eq. 105 does not. At
            p = p_ref and beta = 0.1 it is then 13.863.
    """

    two_over_beta: bool = False
    needs_preferred = True

    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """Mean over the pairs; scalar float32.

        Raises:
            ValueError: the pass over the preferred answers, or a reference, is missing.
        """
        if inputs.preferred is None:
            raise ValueError("DPO needs a pass over the preferred answers")
        margin = self.log_ratio(inputs.preferred) - self.log_ratio(inputs)
        loss = inputs.mean_over_sequences(softplus(-self.beta * margin))
        return 2.0 / self.beta * loss if self.two_over_beta else loss

"""What a retain client optimises: plain causal language modelling."""

from torch import Tensor

from fedunlearn.objectives.interface import OBJECTIVES, Objective, ObjectiveInputs
from fedunlearn.settings import settings


@OBJECTIVES.register("retain_nll")
@settings
class RetainNLL(Objective):
    """Cross-entropy on data that must be kept, in nats per target token."""

    role = "retain"

    def __call__(self, inputs: ObjectiveInputs) -> Tensor:
        """Mean loss over the target tokens; scalar float32."""
        return inputs.reduce(-inputs.token_log_probs, "token")

"""What a retain client optimises: plain causal language modelling."""

from torch import Tensor

from fedunlearn.objectives.interface import OBJECTIVES, Objective, ObjectiveInputs
from fedunlearn.objectives.likelihood import mean_token_loss
from fedunlearn.settings import settings


@OBJECTIVES.register("retain_nll")
@settings
class RetainNLL(Objective):
    """Cross-entropy on data that must be kept, in nats per target token."""

    role = "retain"

    def __call__(self, inputs: ObjectiveInputs) -> Tensor:
        """Mean loss over the batch's target tokens."""
        return mean_token_loss(inputs.logits, inputs.labels)

"""What NPO and DPO share: answers weighed against the model the client started from."""

from torch import Tensor

from fedunlearn.objectives.forgetting import ForgetObjective
from fedunlearn.objectives.interface import ObjectiveInputs
from fedunlearn.settings import settings


@settings
class AgainstReference(ForgetObjective):
    """A forgetting objective on ``log p(y | x) - log p_ref(y | x)``.

    Attributes:
        beta: sharpness of the preference, > 0.
    """

    beta: float = 0.1
    needs_reference = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta <= 0:
            raise ValueError(f"beta must be > 0, got {self.beta}")

    def log_ratio(self, inputs: ObjectiveInputs) -> Tensor:
        """Return the difference for each sequence, (B,) float32.

        Raises:
            ValueError: the reference log-probabilities are missing.
        """
        reference = inputs.reference(type(self).__name__)
        return inputs.sequence_log_probs - reference

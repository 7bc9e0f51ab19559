"""Negative preference optimisation (Zhang et al., 2024; the MPU paper's appendix B.3)."""

from torch import Tensor
from torch.nn.functional import softplus

from fedunlearn.objectives.interface import OBJECTIVES, Objective, ObjectiveInputs
from fedunlearn.objectives.likelihood import sequence_log_probs
from fedunlearn.settings import settings


@OBJECTIVES.register("npo")
@settings
class NPO(Objective):
    """Pushes the answer's probability below the starting model's, ever more gently.

    ``2 / beta * mean log(1 + (p / p_ref) ** beta)`` with p the probability of the whole answer:
    sums of token log-probabilities, not means. At p = p_ref and beta = 0.1 it is 13.863.

    Attributes:
        beta: sharpness of the preference; as it falls to 0 NPO turns into gradient ascent.
    """

    beta: float = 0.1
    needs_reference = True

    def __post_init__(self) -> None:
        if self.beta <= 0:
            raise ValueError(f"beta must be > 0, got {self.beta}")

    def __call__(self, inputs: ObjectiveInputs) -> Tensor:
        """Mean over the sequences of the batch.

        Raises:
            ValueError: the reference log-probabilities are missing.
        """
        if inputs.reference_log_probs is None:
            raise ValueError("NPO needs the starting model's log-probabilities")
        log_ratio = sequence_log_probs(inputs.logits, inputs.labels) - inputs.reference_log_probs
        return 2.0 / self.beta * softplus(self.beta * log_ratio).mean()

"""Self-distillation on adjusted logits (UnDIAL; Dong et al., 2025; MPU, B.3.6, eq. 108-109)."""

from typing import Literal

import torch
from torch import Tensor

from fedunlearn.objectives.forgetting import ForgetObjective
from fedunlearn.objectives.interface import OBJECTIVES, ObjectiveInputs
from fedunlearn.objectives.likelihood import IGNORED
from fedunlearn.objectives.reduction import Reduction
from fedunlearn.roles import Role
from fedunlearn.settings import settings


@OBJECTIVES.register("undial")
@settings
class UnDIAL(ForgetObjective):
    """Distils the starting model into itself with the answer's tokens demoted.

    The target is ``softmax(z_ref - strength * onehot(y_t))``, the loss the cross-entropy of the
    model with it, summed over the answer's tokens and averaged over sequences.

    Attributes:
        strength: the paper's gamma_UD, in logits; 10 in open-unlearning.
        positions: ``answer``: the answer's tokens only (eq. 109). ``all``: prompts too, where
            nothing is demoted, for comparison with open-unlearning, whose mean runs over prompt
            and pads and there demotes whatever token the label -100 happens to index.
        reduction: ``sequence``: sums over each sequence (eq. 109); ``token``: the mean over all
            positions that count.
    """

    strength: float = 10.0
    positions: Literal["answer", "all"] = "answer"
    reduction: Reduction = "sequence"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strength <= 0:
            raise ValueError(f"strength must be > 0, got {self.strength}")

    @property
    def teaches(self) -> frozenset[Role]:
        """The forget pass has a teacher."""
        return super().teaches | {"forget"}

    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """Cross-entropy with the adjusted teacher, reduced; scalar float32.

        Raises:
            ValueError: the starting model's logits are missing, or the mask of real tokens.
        """
        if inputs.reference_logits is None:
            raise ValueError("UnDIAL needs the starting model's logits")
        chosen = self._positions(inputs)
        labels = inputs.labels[chosen]
        adjusted = inputs.reference_logits[chosen].float()
        rows = (labels != IGNORED).nonzero().squeeze(-1)
        adjusted = adjusted.index_put(
            (rows, labels[rows]), torch.tensor(-self.strength).to(adjusted), accumulate=True
        )
        losses = -(adjusted.softmax(-1) * inputs.logits[chosen].float().log_softmax(-1)).sum(-1)
        return losses.sum() / self._denominator(inputs)

    def _positions(self, inputs: ObjectiveInputs) -> Tensor:
        """Positions that count, (B, T) bool."""
        if self.positions == "answer":
            return inputs.labels != IGNORED
        if inputs.token_mask is None:
            raise ValueError("UnDIAL over all positions needs the mask of real tokens")
        return inputs.token_mask[:, 1:] & inputs.token_mask[:, :-1]

    def _denominator(self, inputs: ObjectiveInputs) -> int:
        counts = inputs.denominators
        if self.reduction == "sequence":
            return counts.sequences
        return counts.targets if self.positions == "answer" else counts.predicted

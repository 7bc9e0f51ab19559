"""What all forgetting objectives share: their weight, and an optional term on retained data."""

from abc import abstractmethod

from torch import Tensor

from fedunlearn.objectives.interface import Objective, ObjectiveInputs
from fedunlearn.objectives.reduction import Reduction
from fedunlearn.objectives.retain_terms import RetainTerm, retain_loss
from fedunlearn.roles import Role
from fedunlearn.settings import settings


@settings
class ForgetObjective(Objective):
    """``forget_weight * L_forget + retain_weight * L_retain`` (MPU, appendix B.3).

    Attributes:
        forget_weight: of the forgetting loss; 1 in the paper, but for GradDiff's ``lambda_f``.
        retain_term: loss on the client's own ``retain_data``: ``nll``, ``kl``, or for
            objectives that read hidden states ``hidden``; ``None``: forgetting alone, as in
            FIRM, where retention is the retain clients' and the server's part.
        retain_weight: of that loss; the paper's alpha, which it gives no value for.
        retain_reduction: ``sequence`` sums over the tokens of each sequence (eq. 102);
            ``token`` takes the mean over tokens, as open-unlearning does.
    """

    forget_weight: float = 1.0
    retain_term: RetainTerm | None = None
    retain_weight: float = 1.0
    retain_reduction: Reduction = "sequence"

    def __post_init__(self) -> None:
        if self.forget_weight <= 0:
            raise ValueError(f"forget_weight must be > 0, got {self.forget_weight}")
        if self.retain_weight < 0:
            raise ValueError(f"retain_weight must be >= 0, got {self.retain_weight}")
        if self.retain_term is None and (self.retain_weight, self.retain_reduction) != (
            1.0,
            "sequence",
        ):
            raise ValueError("retain_weight and retain_reduction do nothing without a retain_term")
        if self.retain_term == "hidden" and self.hidden_layer is None:
            raise ValueError("retain_term hidden is for objectives that read hidden states: rmu")

    @property
    def needs_retain(self) -> bool:
        """True with a retain term."""
        return self.retain_term is not None

    @property
    def teaches(self) -> frozenset[Role]:
        """The retain pass, where its term compares with the starting model."""
        return frozenset({"retain"} if self.retain_term in ("kl", "hidden") else ())

    @abstractmethod
    def forget_loss(self, inputs: ObjectiveInputs) -> Tensor:
        """Return the forgetting term alone."""

    def __call__(self, inputs: ObjectiveInputs) -> Tensor:
        """Return the weighted sum of both terms.

        Raises:
            ValueError: a pass that the objective asks for is missing.
        """
        loss = self.forget_weight * self.forget_loss(inputs)
        if self.retain_term is None:
            return loss
        if inputs.retain is None:
            raise ValueError(f"the retain term {self.retain_term} needs a retain batch")
        term = retain_loss(self.retain_term, inputs.retain, self.retain_reduction)
        return loss + self.retain_weight * term

"""Forgetting by negation (Ilharco et al., 2023)."""

import math

from torch import Tensor

from fedunlearn.merging.inputs import TensorInputs
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod
from fedunlearn.settings import settings


@MERGE_METHODS.register("task_arithmetic")
@settings
class TaskArithmetic(MergeMethod):
    """Minus the mean of what forget clients learnt by fine-tuning.

    ``-scaling`` times the mean task vector of the forget clients. The inputs must be task
    vectors of plain fine-tuning on what is to be forgotten: the merge steps back along them.
    Task vectors of an unlearning objective already point away from it, and subtracting them
    teaches it; the report warns when it sees one. Retain clients take no part.

    Attributes:
        scaling: lambda, finite and >= 0; multiplies with gamma.
    """

    needs_learnt = True

    scaling: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scaling) and self.scaling >= 0.0):
            raise ValueError(f"scaling must be a finite number >= 0, got {self.scaling}")

    def rows(self, block: TensorInputs) -> Tensor:
        """Zero without a forget client."""
        learnt = block.of("forget")
        return block.mean_update(learnt).mul_(-self.scaling) if learnt else block.zeros()

"""Gradient difference (Liu et al., 2022; MPU paper, appendix B.3.2, eq. 104)."""

from fedunlearn.objectives.grad_ascent import GradAscent
from fedunlearn.objectives.interface import OBJECTIVES
from fedunlearn.objectives.retain_terms import RetainTerm
from fedunlearn.settings import settings


@OBJECTIVES.register("grad_diff")
@settings
class GradDiff(GradAscent):
    """Gradient ascent on the forget data, and descent on retained data of the client's own.

    ``-lambda_f E l(y_f | x) + lambda_r E l(y | x)`` with the cross-entropy l summed over the
    tokens of each sequence; ``forget_weight`` is lambda_f, ``retain_weight`` lambda_r. Both are
    1 by default, as in open-unlearning; the paper gives no values. Its ``reduction: token`` and
    ``retain_reduction: token`` together are open-unlearning's GradDiff.

    Attributes:
        retain_term: ``nll`` is eq. 104; ``kl`` the other form in use.
    """

    retain_term: RetainTerm | None = "nll"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retain_term is None or self.retain_weight == 0:
            raise ValueError("without a retain term grad_diff is grad_ascent; use that")

"""GradNorm: how strongly one step on a text would move the weights."""

from fedunlearn.metrics.interface import METRICS, TokenMetric
from fedunlearn.metrics.observed import Observed
from fedunlearn.settings import settings


@METRICS.register("grad_norm")
@settings
class GradNorm(TokenMetric):
    """GradNorm: mean over the weights of the Euclidean norm of the loss's gradient."""

    definition = (
        "(1/W) sum over weights w of ||d(mean token loss) / dw||_2, the last target left out of "
        "the loss, dropout off"
    )
    source = "Wang et al. 2024 (arXiv 2402.17012); open-unlearning mia_gradnorm (p=2)"
    direction = "lower: the text is better known, more likely a member"

    def __call__(self, seen: Observed) -> float:
        """Score one text.

        Raises:
            ValueError: no gradient was observed.
        """
        if not len(seen.gradient_norms):
            raise ValueError("grad_norm needs the gradient's norms, which were not observed")
        return float(seen.gradient_norms.double().mean())

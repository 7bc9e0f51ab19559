"""LOSS: the plainest membership attack."""

from fedunlearn.metrics.interface import METRICS, TokenMetric
from fedunlearn.metrics.observed import Observed
from fedunlearn.settings import settings


@METRICS.register("loss")
@settings
class Loss(TokenMetric):
    """LOSS: mean negative log-probability of the targets, nats a token."""

    definition = "-(1/n) sum_t log p(y_t | x, y_<t), the end-of-sequence token included"
    source = "Yeom et al. 2018; locuslab/open-unlearning mia_loss"
    direction = "lower: the text is better known, more likely a member"

    def __call__(self, seen: Observed) -> float:
        """Score one text; 0 where it has no target."""
        return seen.loss

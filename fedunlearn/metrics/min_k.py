"""Min-K%: mean loss of the least probable tokens of a text."""

import torch

from fedunlearn.metrics.interface import METRICS, TokenMetric
from fedunlearn.metrics.observed import Observed
from fedunlearn.settings import settings


@settings
class Lowest(TokenMetric):
    """Attributes that Min-K and Min-K++ share.

    Attributes:
        share: of the tokens that count, the least probable; 0.4 in MUSE and open-unlearning.
        drops_last: leave the last target out; open-unlearning does, muse_bench does not.
    """

    share: float = 0.4
    drops_last: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be in (0, 1], got {self.share}")

    def lowest(self, values: torch.Tensor) -> float:
        """Minus the mean of the lowest values; at least one, 0 where there is none."""
        if not len(values):
            return 0.0
        count = max(1, int(len(values) * self.share))
        return -float(values.double().sort().values[:count].mean())


@METRICS.register("min_k")
@settings
class MinK(Lowest):
    """Min-K%: mean loss of the least probable tokens."""

    definition = "-mean of the max(1, floor(share n)) lowest log p(y_t)"
    source = "Shi et al. 2024 (arXiv 2310.16789); open-unlearning mia_min_k; muse_bench Min-40%"
    direction = "lower: the text is better known, more likely a member"

    def __call__(self, seen: Observed) -> float:
        """Score one text."""
        return self.lowest(seen.log_probs[seen.scored(self.drops_last)])

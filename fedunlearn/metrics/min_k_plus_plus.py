"""Min-K%++: Min-K on log-probabilities standardised by their spread over the vocabulary."""

from fedunlearn.metrics.interface import METRICS
from fedunlearn.metrics.min_k import Lowest
from fedunlearn.metrics.observed import Observed
from fedunlearn.settings import settings

_LEAST_VARIANCE = 1e-6


@METRICS.register("min_k_plus_plus")
@settings
class MinKPlusPlus(Lowest):
    """Min-K%++: mean of the lowest standardised log-probabilities, sign turned."""

    definition = (
        "-mean of the max(1, floor(share n)) lowest (log p(y_t) - mu_t) / sigma_t, mu and sigma "
        "over the vocabulary, sigma^2 at least 1e-6"
    )
    source = "Zhang et al. 2024 (arXiv 2404.02936); open-unlearning mia_min_k_plus_plus"
    direction = "lower: the text is better known, more likely a member"

    def __call__(self, seen: Observed) -> float:
        """Score one text.

        Raises:
            ValueError: the spread over the vocabulary was not observed.
        """
        if len(seen.mean) != seen.count or len(seen.variance) != seen.count:
            raise ValueError("min_k_plus_plus needs the mean and variance over the vocabulary")
        kept = seen.scored(self.drops_last)
        spread = seen.variance[kept].double().clamp_min(_LEAST_VARIANCE).sqrt()
        return self.lowest((seen.log_probs[kept].double() - seen.mean[kept].double()) / spread)

"""PrivLeak: a membership AUC relative to that of a model that never saw the forget data."""

from fedunlearn.metrics.interface import METRICS, Metric
from fedunlearn.settings import settings

OVER, UNDER = "over-unlearned", "under-unlearned"


@METRICS.register("privleak")
@settings
class PrivLeak(Metric):
    """Relative gap, in percent, between this model's AUC and a retrained model's.

    Attributes:
        stabiliser: added to the denominator; 1e-10 in open-unlearning.
        tolerance: percent on either side of 0 that are called neither over- nor under-unlearned.
            A choice of ours; MUSE calls nothing by a threshold.
    """

    definition = (
        "100 ((1 - A) - (1 - A_retrain)) / (1 - A_retrain), A the AUC of Min-K between forget "
        "(members) and holdout"
    )
    source = "MUSE (Shi et al. 2024) sec. 3; open-unlearning privleak; muse_bench eval.py"
    direction = "0 is best; far below: members are still found; far above: over-unlearned"

    stabiliser: float = 1e-10
    tolerance: float = 20.0

    def __call__(self, auc: float, retrained_auc: float = 0.5) -> float:
        """Return percent.

        Args:
            auc: of this model, members being the forget data.
            retrained_auc: of a model trained without them; 0.5 stands in for one.
        """
        ours, theirs = 1.0 - auc, 1.0 - retrained_auc
        return 100.0 * (ours - theirs) / (theirs + self.stabiliser)

    def flag(self, percent: float) -> str | None:
        """Name what a value far from 0 means; over-unlearning is a fault, not a success."""
        if percent > self.tolerance:
            return OVER
        return UNDER if percent < -self.tolerance else None

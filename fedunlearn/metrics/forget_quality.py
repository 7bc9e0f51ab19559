"""Forget quality: can the truth ratios be told from those of a model that never knew?"""

from collections.abc import Sequence

from scipy.stats import ks_2samp

from fedunlearn.metrics.interface import METRICS, Metric
from fedunlearn.settings import settings


@METRICS.register("forget_quality")
@settings
class ForgetQuality(Metric):
    """p-value of the two-sample Kolmogorov-Smirnov test on the forget set's truth ratios."""

    definition = (
        "p of the two-sided two-sample Kolmogorov-Smirnov test (exact up to 10,000 samples) "
        "between R of this model and R of a model trained on the retain data only"
    )
    source = "TOFU sec. 2.2.2; locuslab/open-unlearning ks_test; scipy.stats.ks_2samp"
    direction = "higher: not told from a retrained model; below 0.05: told apart"

    def __call__(self, ratios: Sequence[float], retrained: Sequence[float]) -> float:
        """Return p, in [0, 1]. Order plays no part, and neither does pairing.

        Args:
            ratios: truth ratio of each forget question under this model.
            retrained: under the retrained one.

        Limitations:
            p depends on the number of questions: with 40 only certain values are possible, and a
            difference that 400 questions show may leave 40 at p = 0.5.
        """
        return float(ks_2samp(list(ratios), list(retrained)).pvalue)

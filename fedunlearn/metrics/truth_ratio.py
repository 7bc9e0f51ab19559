"""Truth ratio: how probable false answers are beside a paraphrase of the true one.

Both ratios are low where the true answer is known and near 1 where it is told from false ones by
nothing but chance. They differ in how the false answers are averaged; published tables use the
geometric one, whatever their text says.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from fedunlearn.metrics.interface import METRICS, Metric
from fedunlearn.settings import settings


@settings
class TruthRatio(Metric):
    """What the two ratios share: losses in, a ratio out, and how ratios are summed up.

    Attributes:
        stabiliser: added to the denominator of the ratio and of its inverse; 1e-10 in
            open-unlearning, 0 in TOFU's own code. It decides once losses are near 23 nats a
            token: with it a destroyed model's ratio tends to 0, without it to about 1.
    """

    stabiliser: float = 1e-10

    def __call__(self, right: Sequence[float], wrong: Sequence[float]) -> float:
        """Return R of one question.

        Args:
            right: mean token loss of each paraphrase of the right answer.
            wrong: of each wrong answer.

        Raises:
            ValueError: one of the two is empty.
        """
        if not right or not wrong:
            raise ValueError("a truth ratio needs a right and a wrong answer")
        return self._ratio(-fmean(right), self.log_wrong(wrong))

    def log_wrong(self, wrong: Sequence[float]) -> float:
        """Log of the wrong answers' average probability."""
        raise NotImplementedError

    def _ratio(self, log_right: float, log_wrong: float) -> float:
        if self.stabiliser == 0:
            return math.exp(min(log_wrong - log_right, 700.0))
        return math.exp(log_wrong) / (math.exp(log_right) + self.stabiliser)

    def forget(self, ratio: float) -> float:
        """1 where right and wrong are equally likely: min(R, 1/R)."""
        return min(ratio, 1.0 / (ratio + self.stabiliser)) if ratio > 0 else 0.0

    def retain(self, ratio: float) -> float:
        """1 where no wrong answer is likely: max(0, 1 - R), MPU's eq. 94."""
        return max(0.0, 1.0 - ratio)


@METRICS.register("truth_ratio_geometric")
@settings
class GeometricTruthRatio(TruthRatio):
    """Truth ratio with the geometric mean of the wrong answers' probabilities."""

    definition = "R = exp(-mean_i loss(wrong_i)) / (exp(-loss(paraphrase)) + stabiliser)"
    source = "TOFU aggregate_eval_stat.py; locuslab/open-unlearning truth_ratio"
    direction = "forget: min(R, 1/R) near 1; retain and utility: max(0, 1 - R) high"

    def log_wrong(self, wrong: Sequence[float]) -> float:
        """Mean log-probability."""
        return -fmean(wrong)


@METRICS.register("truth_ratio_arithmetic")
@settings
class ArithmeticTruthRatio(TruthRatio):
    """Truth ratio with the arithmetic mean of the wrong answers' probabilities."""

    definition = "R = mean_i exp(-loss(wrong_i)) / (exp(-loss(paraphrase)) + stabiliser)"
    source = "MPU (arXiv 2602.23798) eq. 93; TOFU paper sec. 2.2; TOFU utils.py"
    direction = "forget: min(R, 1/R) near 1; retain and utility: max(0, 1 - R) high"

    def log_wrong(self, wrong: Sequence[float]) -> float:
        """Log of the mean probability."""
        best = min(wrong)
        return math.log(fmean(math.exp(best - one) for one in wrong)) - best

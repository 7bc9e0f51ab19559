"""Probability of an answer: alone, among given options, and the choice a model prefers."""

import math
from collections.abc import Sequence

from fedunlearn.metrics.interface import METRICS, Metric, TokenMetric
from fedunlearn.metrics.observed import Observed
from fedunlearn.settings import settings


def answer_probability(log_prob: float, num_tokens: int) -> float:
    """TOFU's length-normalised probability, ``p(y | x) ** (1 / |y|)``, in [0, 1].

    Args:
        log_prob: summed log-probability of the answer's tokens.
        num_tokens: how many tokens that is, the end-of-sequence token included.
    """
    return math.exp(log_prob / num_tokens)


def preferred_choice(log_probs: Sequence[float], num_tokens: Sequence[int]) -> int:
    """Index of the choice with the highest mean token log-probability; ties go to the first."""
    means = [log_prob / n for log_prob, n in zip(log_probs, num_tokens, strict=True)]
    return means.index(max(means))


@METRICS.register("answer_probability")
@settings
class AnswerProbability(TokenMetric):
    """Length-normalised probability of the right answer, p(y | x) ** (1 / |y|)."""

    definition = "exp((1/n) sum_t log p(y_t | x, y_<t)), the end-of-sequence token included"
    source = "TOFU (Maini et al. 2024) sec. 2.2; locuslab/open-unlearning probability"
    direction = "forget: lower; retain and utility: higher"

    def __call__(self, seen: Observed) -> float:
        """Score one answer, in [0, 1]."""
        return math.exp(-seen.loss)


@METRICS.register("option_probability")
@settings
class OptionProbability(Metric):
    """Probability of the right answer among given options, each length-normalised.

    Attributes:
        stabiliser: added to the sum of probabilities; 1e-10 in open-unlearning, 0 in TOFU.
    """

    definition = "P(a) / (P(a) + sum_i P(wrong_i) + stabiliser), P = exp(-mean token loss)"
    source = "TOFU sec. 2.2, real authors and world facts; open-unlearning probability_w_options"
    direction = "retain and utility: higher"

    stabiliser: float = 1e-10

    def __call__(self, right: float, wrong: Sequence[float]) -> float:
        """Normalise ``exp(-right)`` among the options.

        Args:
            right: mean token loss of the right answer.
            wrong: of the wrong ones.
        """
        if self.stabiliser == 0:
            # In log space: where all options are improbable they still share 1 between them.
            return 1.0 / (1.0 + math.fsum(_exp(right - one) for one in wrong))
        chance = math.exp(-right)
        return chance / (chance + math.fsum(math.exp(-one) for one in wrong) + self.stabiliser)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf

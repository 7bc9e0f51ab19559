"""Multiple-choice accuracy by the log-likelihood of the choices; ties get expected credit."""

from collections.abc import Sequence

from fedunlearn.metrics.interface import METRICS, Metric
from fedunlearn.settings import settings


@METRICS.register("choice_accuracy")
@settings
class ChoiceAccuracy(Metric):
    """Credit for one question: is the right choice the most likely one?"""

    definition = (
        "1 if the right choice has the highest log-likelihood; 1/m if it shares it with m - 1 "
        "others; else 0"
    )
    source = (
        "Hendrycks et al. 2021; EleutherAI/lm-evaluation-harness acc, which gives a tie to the "
        "first choice"
    )
    direction = "forget: near chance (1 / number of choices); below chance is no success"

    def __call__(self, log_likelihoods: Sequence[float], right: int) -> float:
        """Return the credit, in [0, 1].

        Args:
            log_likelihoods: of each choice.
            right: index of the right one.
        """
        best = max(log_likelihoods)
        ties = [place for place, value in enumerate(log_likelihoods) if value == best]
        return 1.0 / len(ties) if right in ties else 0.0

"""Extraction strength: how little of an answer must be given for the model to say the rest."""

from fedunlearn.metrics.interface import METRICS, TokenMetric
from fedunlearn.metrics.observed import Observed
from fedunlearn.settings import settings


@METRICS.register("extraction_strength")
@settings
class ExtractionStrength(TokenMetric):
    """Share of the targets that greedy decoding gives back once the rest is shown to it.

    Attributes:
        drops_last: leave the last target out, which is the end of sequence of an answer;
            open-unlearning does, for passages as well.
        reaches_zero: a text whose last counted token is not predicted either scores 0. The
            public loop ends at the last token and scores 1/n there, so that no text is ever 0.
    """

    definition = (
        "1 - k/n, k the fewest shown targets after which all others are greedy; at least 1/n "
        "unless reaches_zero"
    )
    source = "Carlini et al. 2021; Wang et al. 2025; locuslab/open-unlearning extraction_strength"
    direction = "forget: lower"

    drops_last: bool = True
    reaches_zero: bool = False

    def __call__(self, seen: Observed) -> float:
        """Score one text, in [0, 1]; 0 where no target is left to count."""
        greedy = seen.greedy[seen.scored(self.drops_last)].tolist()
        if not greedy:
            return 0.0
        shown = max((place + 1 for place, right in enumerate(greedy) if not right), default=0)
        if not self.reaches_zero:
            shown = min(shown, len(greedy) - 1)
        return 1.0 - shown / len(greedy)

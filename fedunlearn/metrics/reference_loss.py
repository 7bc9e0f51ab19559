"""Reference: loss relative to that of a model that has not seen the text."""

from fedunlearn.metrics.interface import METRICS, TokenMetric
from fedunlearn.metrics.observed import Observed
from fedunlearn.settings import settings


@METRICS.register("reference")
@settings
class ReferenceLoss(TokenMetric):
    """Reference: mean loss minus the mean loss of a reference model."""

    definition = "mean token loss - mean token loss of the reference model"
    source = "Carlini et al. 2021; locuslab/open-unlearning mia_reference"
    direction = "lower: the text is better known, more likely a member"

    def __call__(self, seen: Observed) -> float:
        """Score one text.

        Raises:
            ValueError: there is no reference model.
        """
        if seen.reference_loss is None:
            raise ValueError("the attack `reference` needs a reference model")
        return seen.loss - seen.reference_loss

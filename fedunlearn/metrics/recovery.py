"""How much of what unlearning took away a probe brings back."""

from fedunlearn.metrics.interface import METRICS, Metric
from fedunlearn.settings import settings


@METRICS.register("recovery")
@settings
class Recovery(Metric):
    """Share of what unlearning took away that a probe brings back, less what is learned anew.

    Attributes:
        least_loss: below this drop from the original there is nothing to bring back.
        threshold: a share above it is flagged, if the rise is also above two standard errors.
    """

    definition = (
        "((after - before) - anew) / (original - before), of one score without and with the "
        "probe; anew is the retrained model's rise, which a model that never knew gets from the "
        "probe itself: 0 where it falls, and where there is no such model"
    )
    source = "this package; after Hu et al. 2024 (arXiv 2406.13356), Zhang et al. 2024 (2410.16454)"
    direction = "0: the probe brings nothing back, which proves no erasure; 1: all is back"

    least_loss: float = 0.05
    threshold: float = 0.2

    def __call__(
        self, before: float, after: float, original: float, *, anew: float = 0.0
    ) -> float | None:
        """Compare; ``None`` where unlearning took away less than ``least_loss``.

        Args:
            before: score of the unlearned model without the probe; high: it knows.
            after: with the probe.
            original: score of the original model without the probe.
            anew: the retrained model's rise under the same probe, >= 0.
        """
        lost = original - before
        return None if lost < self.least_loss else (after - before - anew) / lost

    def is_high(self, value: float, rise: float, standard_error: float) -> bool:
        """Whether a recovery is flagged.

        Args:
            value: the recovery.
            rise: after - before, less what is learned anew.
            standard_error: of after - before over the samples.
        """
        return value > self.threshold and rise > 2 * standard_error

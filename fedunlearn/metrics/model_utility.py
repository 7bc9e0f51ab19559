"""Model utility: nine averages of TOFU in one number."""

from collections.abc import Mapping

from fedunlearn.metrics.interface import METRICS, Metric
from fedunlearn.settings import settings

SETS = ("retain", "real_authors", "world_facts")
PARTS = ("probability", "rouge_l_recall", "truth_ratio")


@METRICS.register("model_utility")
@settings
class ModelUtility(Metric):
    """Harmonic mean of probability, ROUGE-L recall and truth ratio on three sets."""

    definition = (
        "harmonic mean of nine: {answer probability, among the options for real authors and world "
        "facts; ROUGE-L recall; mean of max(0, 1 - R)} on {retain, real authors, world facts}"
    )
    source = "TOFU sec. 2.2.1; locuslab/open-unlearning model_utility"
    direction = "higher; 0 as soon as one of the nine is 0"

    def __call__(self, parts: Mapping[str, float]) -> float:
        """Return the harmonic mean, in [0, 1].

        Args:
            parts: ``<set>/<part>`` to its value, all nine.

        Raises:
            ValueError: one is missing or negative.
        """
        wanted = [f"{name}/{part}" for name in SETS for part in PARTS]
        if missing := [name for name in wanted if name not in parts]:
            raise ValueError(f"model utility needs nine values; missing: {', '.join(missing)}")
        values = [parts[name] for name in wanted]
        if min(values) < 0:
            raise ValueError(f"model utility needs values >= 0, got {min(values)}")
        return 0.0 if 0.0 in values else len(values) / sum(1.0 / value for value in values)

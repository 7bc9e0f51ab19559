"""ZLib: loss relative to how well the text compresses."""

import zlib

from fedunlearn.metrics.interface import METRICS, TokenMetric
from fedunlearn.metrics.observed import Observed
from fedunlearn.settings import settings


@METRICS.register("zlib")
@settings
class ZLib(TokenMetric):
    """ZLib: mean loss of the targets over the bytes they compress to."""

    definition = "mean token loss / len(zlib.compress(target text as UTF-8))"
    source = "Carlini et al. 2021; open-unlearning mia_zlib; muse_bench PPL/zlib"
    direction = "lower: the text is better known, more likely a member"

    def __call__(self, seen: Observed) -> float:
        """Score one text."""
        return seen.loss / len(zlib.compress(seen.text.encode("utf-8")))

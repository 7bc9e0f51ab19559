"""How well a membership score tells members from others: the area under the ROC curve."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from fedunlearn.metrics.interface import METRICS, Metric
from fedunlearn.settings import settings


@METRICS.register("membership_auc")
@settings
class MembershipAuc(Metric):
    """AUC of a membership score whose low values mean membership."""

    definition = "P(score of a member < score of another) + P(equal) / 2"
    source = "locuslab/open-unlearning mia_auc; 1 minus muse_bench's forget_holdout AUC"
    direction = "1: the attack finds every member; 0.5: it guesses; below: forget data stands out"

    def __call__(self, members: Sequence[float], others: Sequence[float]) -> float:
        """Compute the exact area, ties counting half.

        Args:
            members: scores of texts that may have been trained on; low means known.
            others: of texts that were not.

        Raises:
            ValueError: one of the two is empty, or a score is not a number.
        """
        if not members or not others:
            raise ValueError("an AUC needs members and others")
        scores = np.asarray([*members, *others], dtype=np.float64)
        if np.isnan(scores).any():
            raise ValueError("a membership score is not a number")
        ranks = rankdata(scores)
        below = ranks[len(members) :].sum() - len(others) * (len(others) + 1) / 2
        return float(below / (len(members) * len(others)))

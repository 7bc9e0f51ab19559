"""ROUGE-L of a generated answer (Google's rouge-score): recall as in TOFU, F1 as in MUSE."""

from functools import cache

from rouge_score.rouge_scorer import RougeScorer

from fedunlearn.metrics.interface import METRICS, TextMetric
from fedunlearn.settings import settings


@cache
def _scorer(stemmed: bool) -> RougeScorer:
    return RougeScorer(["rougeL"], use_stemmer=stemmed)


def rouge_l_recall(generated: str, answer: str, *, stemmed: bool = True) -> float:
    """Share of the answer's words on the longest common subsequence, in [0, 1].

    Limitations:
        It compares wording. A low value shows that the answer is not given, not that nothing
        about it is left in the model.
    """
    return float(_scorer(stemmed).score(answer, generated)["rougeL"].recall)


@METRICS.register("rouge_l_recall")
@settings
class RougeLRecall(TextMetric):
    """Share of the right answer's words, in order, in the generated one.

    Attributes:
        stemmed: compare word stems (Porter), as TOFU does.
    """

    definition = "|LCS(words of answer, words of generation)| / |words of answer|"
    source = "TOFU sec. 2.2; locuslab/open-unlearning rougeL_recall (use_stemmer=True)"
    direction = "forget: lower, though 0 proves nothing; retain and utility: higher"

    stemmed: bool = True

    def __call__(self, generated: str, answer: str) -> float:
        """Compare, in [0, 1]."""
        return rouge_l_recall(generated, answer, stemmed=self.stemmed)


@METRICS.register("rouge_l_f1")
@settings
class RougeLF1(TextMetric):
    """Harmonic mean of ROUGE-L precision and recall.

    Attributes:
        stemmed: compare word stems (Porter); ``False`` in muse_bench, ``True`` in open-unlearning.
    """

    definition = "F1 of |LCS| over the words of the answer and over those of the generation"
    source = "MUSE (Shi et al. 2024) sec. 3; swj0419/muse_bench RougeEvalLogger (no stemmer)"
    direction = "forget: lower, though 0 proves nothing; retain: higher"

    stemmed: bool = False

    def __call__(self, generated: str, answer: str) -> float:
        """Compare, in [0, 1]."""
        return float(_scorer(self.stemmed).score(answer, generated)["rougeL"].fmeasure)

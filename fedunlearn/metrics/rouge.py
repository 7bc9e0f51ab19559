"""ROUGE-L recall of a generated answer, as TOFU measures it (Google's rouge-score, stemmed)."""

from functools import cache

from rouge_score.rouge_scorer import RougeScorer


@cache
def _scorer() -> RougeScorer:
    return RougeScorer(["rougeL"], use_stemmer=True)


def rouge_l_recall(generated: str, answer: str) -> float:
    """Share of the answer's words on the longest common subsequence, in [0, 1].

    Limitations:
        It compares wording. A low value shows that the answer is not given, not that nothing
        about it is left in the model.
    """
    return float(_scorer().score(answer, generated)["rougeL"].recall)

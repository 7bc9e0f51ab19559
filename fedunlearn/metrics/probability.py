"""Probability of an answer, and the choice a model prefers."""

import math
from collections.abc import Sequence


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

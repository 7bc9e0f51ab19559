import math

import pytest

from fedunlearn.metrics.probability import answer_probability, preferred_choice
from fedunlearn.metrics.rouge import rouge_l_recall


def test_rouge_l_recall_counts_the_answer_s_words_in_order() -> None:
    answer = "the cat sat on the mat"
    assert rouge_l_recall(answer, answer) == 1.0
    assert rouge_l_recall("the cat on mat", answer) == pytest.approx(4 / 6)
    assert rouge_l_recall("mat the on sat cat", answer) == pytest.approx(2 / 6)
    assert rouge_l_recall("", answer) == 0.0
    assert rouge_l_recall(answer + " and much more", answer) == 1.0


def test_answer_probability_is_normalised_by_length() -> None:
    assert answer_probability(3 * math.log(0.25), 3) == pytest.approx(0.25)


def test_the_preferred_choice_has_the_highest_mean() -> None:
    assert preferred_choice([-4.0, -3.0, -9.0], [4, 2, 10]) == 2
    assert preferred_choice([-1.0, -1.0], [1, 1]) == 0

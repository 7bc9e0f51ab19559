"""Recovery by hand, and its laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedunlearn.metrics import Recovery

SCORES = st.floats(0, 1)


def test_by_hand() -> None:
    assert Recovery()(0.1, 0.55, 1.0) == pytest.approx(0.5)
    assert Recovery()(0.1, 0.55, 1.0, anew=0.45) == pytest.approx(0.0)
    assert Recovery()(0.98, 1.0, 1.0) is None


@given(SCORES, SCORES, SCORES)
def test_nothing_is_0_all_is_1_and_what_anyone_learns_counts_nothing(
    before: float, original: float, rise: float
) -> None:
    metric = Recovery()
    if original - before < metric.least_loss:
        assert metric(before, 1.0, original) is None
        return
    assert metric(before, before, original) == 0.0
    assert metric(before, original, original) == pytest.approx(1.0)
    assert metric(before, before + rise, original, anew=rise) == pytest.approx(0.0, abs=1e-12)


def test_a_flag_needs_a_share_and_more_than_chance() -> None:
    metric = Recovery()
    assert metric.is_high(0.3, 0.3, 0.1)
    assert not metric.is_high(0.2, 0.3, 0.1)
    assert not metric.is_high(0.9, 0.3, 0.15)

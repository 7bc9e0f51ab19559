import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedunlearn.metrics.wilson import Interval, wilson
from fedunlearn.study.uncertainty import percentile_interval, resampled_means
from tests.oracles import study as oracle

Z95 = 1.959963984540054


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (1, 1, 0.2065, 1.0)],
)
def test_known_wilson_intervals(successes: int, n: int, low: float, high: float) -> None:
    found = wilson(successes, n)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


@given(n=st.integers(1, 400), share=st.floats(0, 1))
@example(n=164, share=1.0)  # rounding put the upper end below the share
@settings(max_examples=40, deadline=None)
def test_wilson_is_the_test_turned_round(n: int, share: float) -> None:
    successes = round(share * n)
    found = wilson(successes, n)
    ends = oracle.wilson_ends(successes, n, Z95)
    assert (found.low, found.high) == pytest.approx(ends, abs=2e-5)
    assert found.low <= successes / n <= found.high


@given(n=st.integers(1, 1000), share=st.floats(0, 1), confidence=st.floats(0.5, 0.99))
def test_more_confidence_is_wider_and_symmetric(n: int, share: float, confidence: float) -> None:
    successes = round(share * n)
    near, far = wilson(successes, n, confidence=confidence), wilson(successes, n, confidence=0.995)
    assert far.low <= near.low + 1e-12
    assert near.high <= far.high + 1e-12
    mirrored = wilson(n - successes, n, confidence=confidence)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((near.low, near.high))


@pytest.mark.parametrize(
    "arguments", [(1, 0, 0.95), (-1, 5, 0.95), (6, 5, 0.95), (1, 2, 1.0), (1, 2, 0.0)]
)
def test_wilson_refuses_what_is_no_proportion(arguments: tuple[int, int, float]) -> None:
    successes, n, confidence = arguments
    with pytest.raises(ValueError, match="got"):
        wilson(successes, n, confidence=confidence)


@given(n=st.integers(1, 12), p=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_resampled_means_are_the_oracles(n: int, p: int, seed: int) -> None:
    scores = np.random.default_rng(seed).random((n, p))
    found = resampled_means(scores, resamples=20, generator=seeded(seed))
    expected = oracle.bootstrap_means(scores, resamples=20, generator=seeded(seed))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).random((7, 2))
    whole = resampled_means(scores, resamples=50, generator=seeded())
    monkeypatch.setattr("fedunlearn.study.uncertainty._CHUNK", 21)
    np.testing.assert_allclose(
        resampled_means(scores, resamples=50, generator=seeded()), whole, atol=1e-12
    )


def test_equal_settings_differ_by_nothing_in_any_resample() -> None:
    scores = np.random.default_rng(0).random((30, 1))
    found = resampled_means(np.hstack([scores, scores]), resamples=200, generator=seeded())
    assert (found[:, 0] == found[:, 1]).all()
    assert found[:, 0].std() > 0


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        scores = draw.random((60, 1))
        means = resampled_means(scores, resamples=300, generator=seeded(trial))
        interval = percentile_interval(means[:, 0])
        hits += interval.low <= 0.5 <= interval.high
    assert 0.90 <= hits / 300 <= 0.98


def test_percentiles_leave_out_what_is_unknown() -> None:
    found = percentile_interval(np.array([0.0, np.nan, 1.0]), confidence=0.5)
    assert (found.low, found.high) == pytest.approx((0.25, 0.75))
    with pytest.raises(ValueError, match="at least one sample"):
        percentile_interval(np.array([np.nan]))


def test_a_difference_has_a_sign_where_its_interval_leaves_out_zero() -> None:
    assert Interval(0.1, 0.2).excludes_zero
    assert Interval(-0.2, -0.1).excludes_zero
    assert not Interval(-0.1, 0.2).excludes_zero

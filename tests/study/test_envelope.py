import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedunlearn.study.envelope import common_range, normalised_area, steps
from tests.oracles import study as oracle

shares = st.integers(0, 20).map(lambda twentieths: twentieths / 20)
settings = st.lists(st.tuples(shares, shares), min_size=1, max_size=8)


def split(points: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    forget, kept = np.array(points).T
    return forget, kept


def test_a_step_holds_the_best_seen_so_far() -> None:
    ceilings, heights = steps(np.array([0.5, 0.1, 0.3]), np.array([0.6, 0.4, 0.7]))
    assert ceilings.tolist() == [0.1, 0.3, 0.5]
    assert heights.tolist() == [0.4, 0.7, 0.7]


def test_the_area_of_two_steps() -> None:
    forget, kept = np.array([0.2, 0.4, 0.6]), np.array([0.5, 0.9, 0.7])
    area = normalised_area(forget, kept, low=np.array(0.2), high=np.array(0.6))
    assert area == pytest.approx(0.5 * 0.5 + 0.5 * 0.9)


def test_without_a_common_range_there_is_no_area() -> None:
    low, high = common_range(np.array([0.1, 0.2]), np.array([0.3, 0.4]))
    assert high < low
    assert np.isnan(normalised_area(np.array([0.1]), np.array([1.0]), low=low, high=high))
    assert np.isnan(normalised_area(np.array([0.1]), np.array([1.0]), low=low, high=low))


@given(first=settings, second=settings)
def test_areas_are_the_oracles(
    first: list[tuple[float, float]], second: list[tuple[float, float]]
) -> None:
    (forget, kept), (other, _) = split(first), split(second)
    low, high = common_range(forget, other)
    assume(high > low)
    area = normalised_area(forget, kept, low=low, high=high)
    assert area == pytest.approx(oracle.envelope_area(forget, kept, float(low), float(high)))


@given(points=settings, better=st.floats(0, 1))
def test_keeping_more_everywhere_never_lowers_the_area(
    points: list[tuple[float, float]], better: float
) -> None:
    forget, kept = split(points)
    assume(forget.max() > forget.min())
    ends = {"low": forget.min(), "high": forget.max()}
    before, after = (normalised_area(forget, k, **ends) for k in (kept, kept + better))
    assert after == pytest.approx(before + better)


@given(points=settings, order=st.randoms(use_true_random=False))
def test_the_order_of_settings_does_not_matter(
    points: list[tuple[float, float]], order: object
) -> None:
    shuffled = list(points)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    ends = {"low": np.array(0.25), "high": np.array(0.75)}
    first, second = (normalised_area(*split(p), **ends) for p in (points, shuffled))
    assert first == pytest.approx(second)


@given(st.lists(st.lists(st.tuples(shares, shares), min_size=4, max_size=4), min_size=1))
def test_many_at_once_are_as_one_by_one(rows: list[list[tuple[float, float]]]) -> None:
    forget, kept = np.moveaxis(np.array(rows), -1, 0)
    low, high = forget.min(axis=-1), np.full(len(rows), 1.5)
    together = normalised_area(forget, kept, low=low, high=high)
    alone = [
        normalised_area(f, k, low=a, high=b)
        for f, k, a, b in zip(forget, kept, low, high, strict=True)
    ]
    np.testing.assert_allclose(together, alone)

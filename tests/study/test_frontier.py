import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedunlearn.study.frontier import on_frontier
from tests.oracles import study as oracle

shares = st.integers(0, 5).map(lambda fifths: fifths / 5)
points = st.lists(st.tuples(shares, shares), min_size=1, max_size=10)


def test_the_dominated_one_is_off() -> None:
    found = on_frontier(np.array([0.1, 0.3, 0.2]), np.array([0.5, 0.9, 0.4]))
    assert found.tolist() == [True, True, False]


def test_equal_settings_stand_together() -> None:
    assert on_frontier(np.array([0.1, 0.1, 0.1]), np.array([0.5, 0.5, 0.4])).tolist() == [
        True,
        True,
        False,
    ]


@given(points)
def test_the_frontier_is_the_oracles(settings: list[tuple[float, float]]) -> None:
    forget, kept = np.array(settings).T
    assert on_frontier(forget, kept).tolist() == oracle.frontier(forget, kept)


@given(points)
def test_somebody_is_always_on_it(settings: list[tuple[float, float]]) -> None:
    forget, kept = np.array(settings).T
    assert on_frontier(forget, kept).any()


@given(st.lists(st.lists(st.tuples(shares, shares), min_size=5, max_size=5), min_size=1))
def test_many_at_once_are_as_one_by_one(rows: list[list[tuple[float, float]]]) -> None:
    forget, kept = np.moveaxis(np.array(rows), -1, 0)
    alone = [on_frontier(f, k).tolist() for f, k in zip(forget, kept, strict=True)]
    assert on_frontier(forget, kept).tolist() == alone

"""The robust test on norms: what is found, what is not, and against a slow float64 one."""

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedunlearn.outliers import Norms, clipping, judge, untested

THRESHOLD = 3.5


def client(name: str, scale: float, *, role: str = "forget", one: float = 1.0) -> Norms:
    vectors = {"a": 3.0 * scale * one, "b": 4.0 * scale}
    return Norms(name, role, "d", {"task vector": vectors, "Fisher": {"a": 1.0, "b": 2.0}})


def round_of(*scales: float) -> list[Norms]:
    return [client(f"c{n}", scale) for n, scale in enumerate(scales)]


def test_a_task_vector_a_hundred_times_too_long_is_named_and_nobody_else() -> None:
    found = judge(round_of(1.0, 1.3, 100.0, 0.8), threshold=THRESHOLD)
    assert {one.client_id for one in found} == {"c2"}
    whole = found[0]
    assert (whole.tensor, whole.norm) == ("", pytest.approx(500.0))
    assert whole.median == pytest.approx(math.sqrt(5.0 * 6.5))
    assert "forget client 'c2' (d): the norm of its task vector is 500" in str(whole)


def test_one_tensor_alone_is_found() -> None:
    measured = [client("x", 1.0, one=100.0), *round_of(1.0, 1.0, 1.0)]
    tensors = {one.tensor for one in judge(measured, threshold=THRESHOLD)}
    assert "a" in tensors
    assert "b" not in tensors


def test_one_that_is_far_too_small_is_named_as_a_whole() -> None:
    (only,) = judge(round_of(1.0, 1.0, 1e-4), threshold=THRESHOLD)
    assert (only.client_id, only.tensor) == ("c2", "")
    assert only.deviation < -THRESHOLD
    assert clipping([only], "c2", "task vector") == {}


def test_roles_are_compared_apart_where_there_are_three() -> None:
    """Retain clients whose vectors are ten times shorter are no outliers, in either grouping."""
    retain = [client(f"r{n}", 0.1, role="retain") for n in range(3)]
    assert judge([*round_of(1.0, 1.1, 0.9), *retain], threshold=THRESHOLD) == ()
    assert judge([*round_of(1.0, 1.1), retain[0]], threshold=THRESHOLD) == ()
    odd = client("odd", 100.0)
    named = judge([*round_of(1.0, 1.1), odd, *retain], threshold=THRESHOLD)
    assert {one.client_id for one in named} == {"odd"}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_are_not_compared_and_it_is_said(count: int) -> None:
    measured = round_of(*[1.0, 1000.0][:count])
    assert judge(measured, threshold=THRESHOLD) == ()
    assert "a median needs 3" in untested(measured)[0]
    assert untested(round_of(1.0, 1.0, 1.0)) == ()


def test_clipping_brings_the_norm_to_the_threshold() -> None:
    found = judge(round_of(1.0, 1.0, 100.0), threshold=THRESHOLD)
    factor = clipping(found, "c2", "task vector")[""]
    again = judge(round_of(1.0, 1.0, 100.0 * factor), threshold=THRESHOLD * (1 + 1e-9))
    assert [one for one in again if one.tensor == ""] == []


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=12))
def test_an_honest_round_is_not_accused(scales: list[float]) -> None:
    assert judge(round_of(*scales), threshold=THRESHOLD) == ()


@given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=9))
def test_deviations_are_those_of_the_definition(scales: list[float]) -> None:
    logs = [math.log(5.0 * scale) for scale in scales]
    middle = median(logs)
    sigma = max(1.4826 * median(abs(one - middle) for one in logs), 0.5)
    wanted = {
        f"c{n}": (log - middle) / sigma
        for n, log in enumerate(logs)
        if abs(log - middle) / sigma > THRESHOLD + 1e-9
    }
    found = {
        one.client_id: one.deviation
        for one in judge(round_of(*scales), threshold=THRESHOLD)
        if one.tensor == ""
    }
    for name, deviation in wanted.items():
        assert found[name] == pytest.approx(deviation)

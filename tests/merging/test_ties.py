import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.merging import Ties
from tests.merging.clients import client, drawn, inputs
from tests.oracles import merging as oracle

THREE = ([3.0, -1.0, 0.2], [-1.0, -2.0, 0.3], [2.0, 0.5, -0.4])


def test_trims_elects_and_averages_those_who_agree() -> None:
    clients = [client(f"{n}", values) for n, values in enumerate(THREE)]
    assert Ties(density=2 / 3)(inputs(*clients)).tolist() == [[2.5, -1.5, 0.0]]


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 999))
@settings(deadline=None)
def test_agrees_with_the_oracle(count: int, size: int, seed: int) -> None:
    clients = drawn("a" * count, shape=(1, size), seed=seed)
    found = Ties(density=0.5)(inputs(*clients))
    rows = [c.task_vector.flatten().tolist() for c in clients]
    expected = oracle.ties(rows, max(1, size // 2))
    torch.testing.assert_close(found.flatten(), torch.tensor(expected, dtype=torch.float32))


def test_where_the_signs_cancel_the_result_is_zero() -> None:
    clients = [client("a", [1.0, 4.0]), client("b", [-1.0, 4.0])]
    assert Ties(density=1.0)(inputs(*clients)).tolist() == [[0.0, 4.0]]


def test_a_near_cancellation_keeps_its_exact_sign() -> None:
    tiny = 2.0**-30  # lost beside 1 in float32
    clients = [client("a", [1.0]), client("b", [tiny]), client("c", [-1.0])]
    assert Ties(density=1.0)(inputs(*clients)).item() == pytest.approx((1.0 + tiny) / 2)


def test_trimming_is_within_each_client() -> None:
    clients = [client("a", [100.0, 90.0]), client("b", [0.1, 0.2])]
    assert Ties(density=0.5)(inputs(*clients)).tolist()[0] == pytest.approx([100.0, 0.2])


def test_retain_clients_take_part_only_if_asked() -> None:
    clients = [client("a", [1.0]), client("b", [3.0], role="retain")]
    assert Ties()(inputs(*clients)).tolist() == [[1.0]]
    assert Ties(clients="all")(inputs(*clients)).tolist() == [[2.0]]


def test_fewer_values_than_the_density_wants_are_no_voters() -> None:
    clients = [client("a", [2.0, 0.0, 0.0]), client("b", [4.0, 0.0, 1.0])]
    assert Ties(density=1.0)(inputs(*clients)).tolist() == [[3.0, 0.0, 1.0]]


@pytest.mark.parametrize("density", [0.0, -0.5, 1.01, float("nan")])
def test_density_out_of_range(density: float) -> None:
    with pytest.raises(ValueError, match="density must be in"):
        Ties(density=density)

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.merging import Ties
from fedunlearn.merging.ties import Scope, ZeroSign
from tests.merging.clients import client, cut, drawn, inputs, merge_model
from tests.oracles import merging as oracle
from tests.oracles.merge_methods import ties_model

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


@given(
    st.integers(1, 4),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from(["drop", "positive", "majority"]),
    st.integers(0, 999),
)
@settings(deadline=None, max_examples=80)
def test_across_the_model_agrees_with_the_oracle(
    count: int, columns: list[int], density: float, zero_sign: ZeroSign, seed: int
) -> None:
    source = torch.Generator().manual_seed(seed)
    clients = drawn("a" * count, shape=(2, sum(columns)), seed=seed)
    for each in clients:  # few values, so that thresholds tie and sums cancel
        each.task_vector.copy_(torch.randint(-2, 3, (2, sum(columns)), generator=source))
    model = list(cut(clients, columns))
    found = merge_model(Ties(scope="model", density=density, zero_sign=zero_sign), model)
    vectors = [[c.task_vector.flatten().tolist() for c in one.contributions] for one in model]
    expected = ties_model(vectors, density, zero_sign)
    for one, row in zip(found, expected, strict=True):
        torch.testing.assert_close(one.flatten(), torch.tensor(row))


def test_trimming_across_the_model_may_empty_a_tensor() -> None:
    model = list(cut([client("a", [1.0, 2.0, 30.0, 40.0])], [2, 2]))
    whole, each = (merge_model(Ties(scope=scope), model) for scope in ("model", "tensor"))
    assert [one.tolist() for one in whole] == [[[0.0, 0.0]], [[30.0, 40.0]]]
    assert [one.tolist() for one in each] == [[[0.0, 2.0]], [[0.0, 40.0]]]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 999))
@settings(deadline=None)
def test_across_the_model_it_does_not_matter_where_tensors_end(
    columns: list[int], seed: int
) -> None:
    clients = drawn("aab", shape=(2, sum(columns)), seed=seed)
    method = Ties(scope="model", density=0.3, zero_sign="majority")
    (whole,) = merge_model(method, list(cut(clients, [sum(columns)])))
    assert torch.equal(torch.cat(merge_model(method, list(cut(clients, columns))), dim=1), whole)


@pytest.mark.parametrize("scope", ["tensor", "model"])
def test_a_zero_net_sign_follows_the_rule_that_was_chosen(scope: Scope) -> None:
    """Coordinates elect 0, -, -, +: the majority is minus."""
    clients = [client("a", [2.0, -1.0, -1.0, 1.0]), client("b", [-2.0, -1.0, -3.0, 1.0])]
    found = {
        rule: Ties(density=1.0, scope=scope, zero_sign=rule)(inputs(*clients)).tolist()[0]
        for rule in ("drop", "positive", "majority")
    }
    assert found == {
        "drop": [0.0, -1.0, -2.0, 1.0],
        "positive": [2.0, -1.0, -2.0, 1.0],
        "majority": [-2.0, -1.0, -2.0, 1.0],
    }


def test_the_majority_is_the_tensors_own_or_the_models() -> None:
    clients = [client("a", [2.0, -1.0, 5.0, 5.0]), client("b", [-2.0, -1.0, 5.0, 5.0])]
    model = list(cut(clients, [2, 2]))
    own, shared = (
        merge_model(Ties(density=1.0, scope=scope, zero_sign="majority"), model)[0].tolist()
        for scope in ("tensor", "model")
    )
    assert own == [[-2.0, -1.0]]
    assert shared == [[2.0, -1.0]]


def test_entries_tied_at_the_threshold_are_all_kept() -> None:
    alone = client("a", [1.0, -1.0, 1.0, 0.5])
    for scope in ("tensor", "model"):
        found = Ties(density=0.25, scope=scope)(inputs(alone))
        assert found.tolist() == [[1.0, -1.0, 1.0, 0.0]]


@pytest.mark.parametrize("density", [0.0, -0.5, 1.01, float("nan")])
def test_density_out_of_range(density: float) -> None:
    with pytest.raises(ValueError, match="density must be in"):
        Ties(density=density)

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedunlearn.merging import Fulm, FulmMean, TensorInputs, Ties, settle
from fedunlearn.roles import Role
from tests.merging.clients import client, cut, drawn, inputs, merge_model
from tests.oracles import merge_methods as oracle


def flattened(model: list[TensorInputs]) -> list[list[list[float]]]:
    return [[c.task_vector.flatten().tolist() for c in one.contributions] for one in model]


@given(
    st.text("abr", min_size=1, max_size=6),
    st.integers(0, 999),
    st.sampled_from([-0.2, 0.1, 0.3, 0.6]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_agrees_with_the_oracle(roles: str, seed: int, threshold: float, averaged: bool) -> None:
    model = list(cut(drawn(roles, shape=(2, 7), seed=seed), [4, 3]))
    kind = FulmMean if averaged else Fulm
    found = merge_model(kind(threshold=threshold), model)
    expected = oracle.fulm(flattened(model), threshold=threshold, density=0.3, averaged=averaged)
    for one, row in zip(found, expected, strict=True):
        torch.testing.assert_close(one.flatten(), torch.tensor(row), rtol=1e-5, atol=1e-6)


BIO = (client("a", [4.0, 0.0, 1.0]), client("b", [2.0, 0.0, -1.0], domain="e"))
LAW = client("c", [0.0, 3.0, 0.0], domain="f")
KEEP = client("r", [0.0, 0.0, -5.0], role="retain")


def test_ties_within_and_a_sum_across() -> None:
    everyone = inputs(*BIO, LAW, KEEP)
    assert Fulm(density=1.0)(everyone).tolist() == [[3.0, 3.0, -5.0]]
    averaged = FulmMean(density=1.0)(everyone)
    assert averaged.tolist()[0] == pytest.approx([1.0, 1.0, -5.0 / 3.0])
    assert Fulm(density=1.0, clients="forget")(everyone).tolist() == [[3.0, 3.0, 0.0]]


def test_clusters_are_of_whole_task_vectors() -> None:
    one = [client("a", [3.0, 1.0]), client("b", [3.0, -1.0])]
    other = [client("a", [0.0, 9.0]), client("b", [0.0, -9.0])]
    model = [TensorInputs(name, tuple(both)) for name, both in (("v", one), ("w", other))]
    alone = Fulm(density=1.0)(model[0])
    assert alone.tolist() == [[3.0, 0.0]]
    together = merge_model(Fulm(density=1.0), model)
    assert together[0].tolist() == [[6.0, 0.0]]


ROLES: dict[str, Role] = {"a": "forget", "b": "forget", "c": "forget", "r": "retain"}


def test_the_report_says_who_is_with_whom() -> None:
    facts = settle(Fulm(), lambda: [inputs(*BIO, LAW, KEEP)]).facts(ROLES, 1.0)
    assert facts["clusters"] == [["a", "b"], ["c"], ["r"]]
    assert facts["similarity"]["a"]["b"] == pytest.approx(7 / (17**0.5 * 5**0.5))
    forget = settle(Fulm(clients="forget"), lambda: [inputs(*BIO, LAW, KEEP)]).facts(ROLES, 1.0)
    assert forget["clusters"] == [["a", "b"], ["c"]]


def test_one_cluster_of_forget_clients_is_ties() -> None:
    everyone = inputs(*drawn("aabb", shape=(3, 7)))
    alone = Fulm(threshold=-1.0, clients="forget", density=0.5)
    torch.testing.assert_close(alone(everyone), Ties(density=0.5)(everyone))


def test_a_sum_is_the_mean_times_the_number_of_clusters() -> None:
    everyone = inputs(*BIO, LAW, KEEP)
    torch.testing.assert_close(Fulm()(everyone), 3 * FulmMean()(everyone))


def test_trimming_across_the_model_takes_no_account_of_tensors() -> None:
    clients = drawn("aabr", shape=(3, 8))
    whole = Fulm(scope="model")(TensorInputs("w", tuple(clients)))
    parts: list[Tensor] = merge_model(Fulm(scope="model"), list(cut(clients, [1, 5, 2])))
    assert torch.equal(torch.cat(parts, dim=1), whole)

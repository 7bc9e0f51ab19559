from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.merging import Contribution, Knots, TensorInputs, Ties
from fedunlearn.tensors.low_rank import LowRank
from tests.merging.clients import client, inputs, low_rank
from tests.oracles import merge_methods as oracle


def merged(method: Knots, clients: list[Contribution]) -> torch.Tensor:
    return method(TensorInputs("w", tuple(clients)))


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([0.2, 0.5, 1.0]),
    st.booleans(),
    st.integers(0, 999),
)
@settings(deadline=None, max_examples=60)
def test_agrees_with_the_oracle(
    count: int, rank: int, density: float, scaled: bool, seed: int
) -> None:
    clients = low_rank("a" * count, shape=(6, 5), rank=rank, seed=seed)
    found = merged(Knots(density=density, factor="scaled" if scaled else "plain"), clients)
    products = [c.update for c in clients if isinstance(c.update, LowRank)]
    exact = [(one.left.double() @ one.right.double()).numpy() for one in products]
    expected = torch.from_numpy(oracle.knots(exact, density, scaled=scaled)).float()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_client_alone_gets_its_task_vector_back() -> None:
    (alone,) = low_rank("a", shape=(6, 5), rank=2)
    torch.testing.assert_close(merged(Knots(), [alone]), alone.task_vector)


def test_copies_of_a_client_are_that_client() -> None:
    (alone,) = low_rank("a", shape=(6, 5), rank=2)
    copies = [replace(alone, client_id=f"{n}") for n in range(5)]
    torch.testing.assert_close(merged(Knots(), copies), alone.task_vector)


def test_clients_that_share_no_direction_add_up() -> None:
    clients = [client("a", [3.0, 0.0]), client("b", [0.0, -4.0])]
    torch.testing.assert_close(Knots()(inputs(*clients)), torch.tensor([[3.0, -4.0]]))


def test_without_trimming_both_factors_are_one_method() -> None:
    clients = low_rank("aaab", shape=(6, 9), rank=2)
    torch.testing.assert_close(
        merged(Knots(), clients), merged(Knots(factor="plain"), clients), rtol=1e-4, atol=1e-4
    )


@given(st.integers(0, 999), st.sampled_from([0.3, 1.0]))
@settings(deadline=None, max_examples=30)
def test_the_basis_of_the_output_does_not_matter(seed: int, density: float) -> None:
    """Turning every update's output space turns the merge; TIES alone has no such property."""
    clients = low_rank("aab", shape=(6, 5), rank=2, seed=seed)
    source = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn((6, 6), generator=source).double()).Q
    turned = [
        replace(c, update=LowRank((turn @ c.update.left.double()).float(), c.update.right))
        for c in clients
        if isinstance(c.update, LowRank)
    ]
    method = Knots(density=density)
    expected = (turn @ merged(method, clients).double()).float()
    torch.testing.assert_close(merged(method, turned), expected, rtol=1e-3, atol=1e-3)
    ties = Ties(density=density)
    plain = ties(TensorInputs("w", tuple(turned)))
    other = (turn @ ties(TensorInputs("w", tuple(clients))).double()).float()
    assert not torch.allclose(plain, other, rtol=1e-3, atol=1e-3)


def test_ranks_may_differ() -> None:
    one = low_rank("a", shape=(6, 5), rank=1)[0]
    two = replace(low_rank("a", shape=(6, 5), rank=4, seed=1)[0], client_id="other")
    bare = [replace(c, update=c.task_vector) for c in (one, two)]
    found = merged(Knots(), [one, two])
    torch.testing.assert_close(found, merged(Knots(), bare), rtol=1e-4, atol=1e-4)


def test_products_of_some_only_are_not_enough() -> None:
    clients = low_rank("aa", shape=(6, 5), rank=2)
    mixed = [clients[0], replace(clients[1], update=clients[1].task_vector)]
    torch.testing.assert_close(
        merged(Knots(), mixed), merged(Knots(), clients), rtol=1e-4, atol=1e-4
    )


def test_the_update_stays_within_the_clients_output_space() -> None:
    clients = low_rank("aab", shape=(9, 8), rank=2)
    assert torch.linalg.matrix_rank(merged(Knots(density=0.2), clients), rtol=1e-5) <= 6


def test_only_forget_clients_unless_asked() -> None:
    clients = low_rank("ar", shape=(4, 5), rank=1)
    torch.testing.assert_close(merged(Knots(), clients), clients[0].task_vector)
    assert not torch.allclose(merged(Knots(clients="all"), clients), clients[0].task_vector)


def test_a_layer_of_a_large_model_takes_low_rank_work_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = low_rank("aabb", shape=(512, 1024), rank=4)
    seen = []
    real = torch.linalg.svd

    def watched(matrix: torch.Tensor, **options: bool) -> object:
        seen.append(tuple(matrix.shape))
        return real(matrix, **options)

    monkeypatch.setattr(torch.linalg, "svd", watched)
    merged(Knots(), clients)
    assert seen == [(16, 16)]

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.merging import Firm, TensorInputs, Uniform
from fedunlearn.merging.firm import weighted_mean
from tests.merging.clients import client, drawn, inputs, row
from tests.oracles import merge_methods as methods
from tests.oracles import merging as oracle


@given(st.text("abr", min_size=1, max_size=6), st.floats(0.05, 1.0), st.integers(0, 999))
@settings(deadline=None)
def test_agrees_with_the_oracle(roles: str, alpha: float, seed: int) -> None:
    clients = drawn(roles, shape=(3, 7), seed=seed)
    found = Firm()(TensorInputs("w", tuple(clients), alpha=alpha, eps0=1e-8))
    rows = [row(client) for client in clients]
    expected = torch.tensor(oracle.firm(rows, alpha, 1e-8), dtype=torch.float32)
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-4, atol=1e-6)


def test_a_coordinate_claimed_by_one_gets_its_update_whole() -> None:
    one = client("a", [6.0, 3.0, 9.0], domain="a", fisher=[4.0, 0.0, 0.0])
    two = client("b", [1.0, 5.0, 9.0], domain="b", fisher=[0.0, 2.0, 0.0])
    assert Firm()(inputs(one, two)).tolist() == [[6.0, 5.0, 0.0]]


def test_forget_and_retain_terms_add() -> None:
    forget = client("a", [6.0, 6.0], fisher=[1.0, 0.5])
    retain = client("b", [-1.0, -2.0], role="retain", fisher=[1.0, 0.0])
    found = Firm()(inputs(forget, retain))
    torch.testing.assert_close(found, torch.tensor([[5.0, 6.0]]))


def test_ten_times_the_same_domain_changes_nothing() -> None:
    once = drawn("a")
    many = [replace(once[0], client_id=f"{n}", domain=f"d{n}") for n in range(10)]
    found = [Firm()(TensorInputs("w", tuple(clients), alpha=0.3)) for clients in (once, many)]
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-6)


@given(st.text("abr", min_size=1, max_size=6), st.floats(0.05, 1.0), st.integers(0, 999))
@settings(deadline=None, max_examples=50)
def test_ablations_agree_with_their_oracles(roles: str, alpha: float, seed: int) -> None:
    clients = drawn(roles, shape=(3, 7), seed=seed)
    rows = [row(client) for client in clients]
    for method, expected in (
        (Firm(normalize=False), methods.firm_raw(rows, alpha)),
        (Firm(weights="uniform"), methods.firm_uniform(rows, alpha)),
        (Firm(weights="dense"), methods.firm_dense(rows)),
    ):
        found = method(TensorInputs("w", tuple(clients), alpha=alpha)).flatten()
        torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-10)


def test_ablations_of_known_values() -> None:
    one = client("a", [6.0, 3.0, 9.0], domain="a", fisher=[4.0, 1.0, 0.0])
    two = client("b", [2.0, 5.0, 9.0], domain="b", fisher=[2.0, 0.0, 0.0])
    keep = client("c", [1.0, 1.0, 1.0], role="retain", fisher=[0.5, 0.0, 0.25])
    everyone = inputs(one, two, keep)
    assert Firm(normalize=False)(everyone).tolist() == [[28.5, 3.0, 0.25]]
    assert Firm(weights="uniform")(everyone).tolist() == [[5.0, 3.0, 1.0]]
    assert Firm(weights="dense")(everyone).tolist() == [[5.0, 5.0, 10.0]]


def test_a_dense_ablation_weighs_domains_and_not_clients() -> None:
    clients = [client("a", [0.0]), client("b", [6.0]), client("c", [9.0], domain="e")]
    assert Firm(weights="dense")(inputs(*clients)).item() == 6.0
    assert Uniform()(inputs(*clients)).item() == 5.0


def test_raw_fishers_as_small_as_they_are_hardly_move_the_model() -> None:
    clients = TensorInputs("w", tuple(drawn("abr")), alpha=0.5)
    assert Firm(normalize=False)(clients).norm() < 1e-4 * Firm()(clients).norm()


@given(st.integers(0, 999))
@settings(deadline=None)
def test_each_term_lies_between_its_sources(seed: int) -> None:
    clients = TensorInputs("w", tuple(drawn("aabb", seed=seed)), alpha=0.5)
    stacked = torch.stack([s.task_vector for s in clients.forget_domains])
    low, high = stacked.amin(0).clamp(max=0.0), stacked.amax(0).clamp(min=0.0)
    merged = Firm()(clients)
    assert ((merged >= low - 1e-5) & (merged <= high + 1e-5)).all()


@pytest.mark.parametrize("eps0", [0.0, 1e-8])
def test_nothing_kept_is_exactly_zero(eps0: float) -> None:
    update, silent = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 1.0])
    assert weighted_mean([update, update], [silent, silent], eps0).tolist() == [0.0, 4.0]
    assert silent.tolist() == [0.0, 1.0]


def test_the_stabiliser_is_not_lost() -> None:
    update, faint = torch.tensor([3.0]), torch.tensor([1e-8])
    assert weighted_mean([update], [faint], 1e-8).item() == pytest.approx(1.5)

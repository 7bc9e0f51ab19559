import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.merging import Avg, Firm, TensorInputs, Uniform
from tests.merging.clients import client, drawn, inputs, row
from tests.oracles import merge_methods as oracle


@given(st.text("abr", min_size=1, max_size=6), st.integers(0, 999))
@settings(deadline=None)
def test_agrees_with_the_oracle(roles: str, seed: int) -> None:
    clients = drawn(roles, seed=seed)
    found = Uniform()(TensorInputs("w", tuple(clients)))
    expected = torch.tensor(oracle.uniform([row(client) for client in clients]))
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-5, atol=1e-6)


def test_six_forget_clients_and_one_retain_client() -> None:
    clients = [client(f"f{n}", [6.0 * n], domain=f"{n % 2}") for n in range(6)]
    assert Uniform()(inputs(*clients, client("r", [0.5], role="retain"))).item() == 15.5


def test_retain_clients_are_averaged_among_themselves() -> None:
    clients = [client("r", [1.0], role="retain"), client("s", [2.0], role="retain")]
    assert Uniform()(inputs(client("a", [8.0]), *clients)).item() == 9.5


def test_is_twice_the_mean_of_one_client_a_role_and_dense_firm_with_one_client_a_domain() -> None:
    pair, domains = drawn("ar"), drawn("abrr")
    torch.testing.assert_close(Uniform()(inputs(*pair)), 2 * Avg()(inputs(*pair)))
    assert torch.equal(Uniform()(inputs(*domains)), Firm(weights="dense")(inputs(*domains)))

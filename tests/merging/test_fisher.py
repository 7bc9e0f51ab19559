from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.merging import Avg, FisherMerge, TensorInputs
from tests.merging.clients import client, drawn, inputs, row
from tests.oracles import merge_methods as oracle


@given(st.text("abr", min_size=1, max_size=6), st.integers(0, 999))
@settings(deadline=None)
def test_agrees_with_the_oracle(roles: str, seed: int) -> None:
    clients = drawn(roles, seed=seed)
    rows = [row(client) for client in clients]
    found = FisherMerge()(TensorInputs("w", tuple(clients)))
    expected = oracle.weighted_mean([r[3] for r in rows], [r[2] for r in rows])
    torch.testing.assert_close(found.flatten(), torch.tensor(expected), rtol=1e-6, atol=1e-7)


ONE = client("a", [6.0, 3.0, 9.0, 4.0], fisher=[3.0, 1.0, 0.0, 0.0])
KEEP = client("r", [-2.0, 5.0, 1.0, 2.0], role="retain", fisher=[1.0, 0.0, 2.0, 0.0])


def test_forget_and_retain_clients_share_one_mean() -> None:
    assert FisherMerge()(inputs(ONE, KEEP)).tolist() == [[4.0, 3.0, 1.0, 0.0]]


def test_a_floor_gives_the_mean_where_nobody_knows() -> None:
    found = FisherMerge(floor=1.0)(inputs(ONE, KEEP))
    assert found.tolist()[0] == pytest.approx([4.0, 4.0, 11.0 / 3.0, 3.0])


def test_equal_fishers_give_the_mean_of_all() -> None:
    clients = [replace(c, fisher=torch.full((4, 5), 1e-9)) for c in drawn("abrr")]
    torch.testing.assert_close(FisherMerge()(inputs(*clients)), Avg()(inputs(*clients)))


@given(st.integers(0, 999), st.integers(-60, 60))
@settings(deadline=None)
def test_only_ratios_of_fishers_count(seed: int, exponent: int) -> None:
    clients = [replace(c, fisher=torch.rand(4, 5) + 1e-6) for c in drawn("abr", seed=seed)]
    scaled = [replace(c, fisher=c.fisher * 2.0**exponent) for c in clients if c.fisher is not None]
    assert torch.equal(FisherMerge()(inputs(*scaled)), FisherMerge()(inputs(*clients)))


def test_products_that_float32_would_lose() -> None:
    faint = client("a", [1e-20], fisher=[1e-30])
    assert FisherMerge()(inputs(faint)).item() == pytest.approx(1e-20)


def test_a_client_that_is_sure_of_everything_prevails() -> None:
    sure = client("a", [1.0, 2.0], fisher=[1.0, 1.0])
    unsure = client("b", [8.0, 9.0], fisher=[1e-12, 1e-12])
    torch.testing.assert_close(FisherMerge()(inputs(sure, unsure)), torch.tensor([[1.0, 2.0]]))

import pytest
import torch

from fedunlearn.merging import Avg, Sum
from fedunlearn.tensors.low_rank import task_vector
from tests.merging.clients import client, drawn, inputs


def test_avg_counts_every_client_once() -> None:
    clients = [client("a", [3.0]), client("b", [6.0]), client("c", [9.0], role="retain")]
    assert Avg()(inputs(*clients)).tolist() == [[6.0]]


def test_sum_leaves_retain_clients_out() -> None:
    clients = [client("a", [3.0]), client("b", [6.0]), client("c", [9.0], role="retain")]
    assert Sum()(inputs(*clients)).tolist() == [[9.0]]


def test_sum_of_products_is_not_the_product_of_sums() -> None:
    A = [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])]
    B = [torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0], [1.0]])]
    clients = drawn("ab", shape=(2, 2))
    for each, a, b in zip(clients, A, B, strict=True):
        each.task_vector.copy_(task_vector(a, b, 1.0))
    assert torch.equal(Sum()(inputs(*clients)), torch.eye(2))


def test_ten_times_the_same_client_is_ten_times_the_sum_and_the_same_mean() -> None:
    clients = [client(f"{n}", [0.5, -2.0], domain=f"{n}") for n in range(10)]
    assert Sum()(inputs(*clients)).tolist() == [[5.0, -20.0]]
    assert Avg()(inputs(*clients)).tolist()[0] == pytest.approx([0.5, -2.0])


def test_sum_without_a_forget_client_is_zero() -> None:
    assert not Sum()(inputs(*drawn("rr"))).any()

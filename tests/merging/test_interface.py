import logging
from dataclasses import replace

import pytest
import torch

from fedunlearn.errors import SummaryError
from fedunlearn.merging import TensorInputs
from tests.merging.clients import client, drawn, inputs


def test_forget_clients_are_pooled_by_domain_before_normalising() -> None:
    one = client("a", [2.0, 0.0], fisher=[1.0, 0.5])
    two = client("b", [0.0, 4.0], fisher=[0.0, 4.0])
    (source,) = inputs(one, two).forget_domains
    assert source.name == "d"
    assert source.task_vector.tolist() == [[1.0, 2.0]]
    torch.testing.assert_close(source.fisher, torch.tensor([[0.5 / 2.25, 1.0]]))


def test_retain_clients_stay_apart_even_in_one_domain() -> None:
    sources = inputs(*drawn("rra")).retain_clients
    assert [source.name for source in sources] == ["client-0", "client-1"]


def test_alpha_sparsifies_each_source() -> None:
    found = TensorInputs("w", tuple(drawn("ar", shape=(5, 8))), alpha=0.1)
    for source in (*found.forget_domains, *found.retain_clients):
        assert (source.fisher > 0).sum() == 4


def test_contributions_are_sorted_by_client() -> None:
    found = inputs(client("b", [1.0]), client("a", [2.0]))
    assert [c.client_id for c in found.contributions] == ["a", "b"]


def test_an_all_zero_fisher_gives_no_weight_and_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        (source,) = inputs(client("a", [1.0, 2.0], fisher=[0.0, 0.0])).forget_domains
    assert not source.fisher.any()
    assert "tensor w: the Fisher of d is all zero" in caplog.text


def test_refuses_no_client() -> None:
    with pytest.raises(SummaryError, match="'w': no client"):
        inputs()


def test_refuses_one_client_twice() -> None:
    with pytest.raises(SummaryError, match="'a' comes twice"):
        inputs(client("a", [1.0]), client("a", [2.0]))


@pytest.mark.parametrize("part", ["task_vector", "fisher"])
def test_refuses_differing_shapes(part: str) -> None:
    odd = replace(client("b", [1.0, 2.0]), **{part: torch.ones(1, 3)})
    with pytest.raises(SummaryError, match=r"client 'b' has shape"):
        inputs(client("a", [1.0, 2.0]), odd)


def test_a_fisher_that_is_asked_for_but_missing_names_the_client() -> None:
    bare = replace(client("a", [1.0]), fisher=None)
    with pytest.raises(SummaryError, match="client 'a' has no Fisher"):
        _ = inputs(bare).forget_domains

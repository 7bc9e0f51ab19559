import logging
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedunlearn.errors import SummaryError
from fedunlearn.merging import MERGE_METHODS, Avg, MergeMethod, TensorInputs, settle
from tests.merging.clients import client, drawn, inputs, low_rank

ONE = torch.ones(1, dtype=torch.float64)


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


@pytest.mark.parametrize("part", ["update", "fisher"])
def test_refuses_differing_shapes(part: str) -> None:
    odd = replace(client("b", [1.0, 2.0]), **{part: torch.ones(1, 3)})
    with pytest.raises(SummaryError, match=r"client 'b' has shape"):
        inputs(client("a", [1.0, 2.0]), odd)


def test_blocks_of_rows_are_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TensorInputs("w", tuple(low_rank("aabr", shape=(7, 4), rank=2)), alpha=0.3)
    expected = [MERGE_METHODS[name]()(whole) for name in MERGE_METHODS]
    monkeypatch.setattr("fedunlearn.merging.inputs.BLOCK", 9)  # two rows
    again = TensorInputs("w", whole.contributions, alpha=0.3)
    blocks = [again.block(rows) for rows in again.row_blocks()]
    assert [block.rows for block in blocks] == [slice(n, min(n + 2, 7)) for n in (0, 2, 4, 6)]
    for parts in zip(*([*b.forget_domains, *b.retain_clients] for b in blocks), strict=True):
        (source,) = [
            one
            for one in (*whole.forget_domains, *whole.retain_clients)
            if one.name == parts[0].name
        ]
        assert torch.equal(torch.cat([part.fisher for part in parts]), source.fisher)
        torch.testing.assert_close(
            torch.cat([part.task_vector for part in parts]), source.task_vector
        )
    for name, merged in zip(MERGE_METHODS, expected, strict=True):
        torch.testing.assert_close(MERGE_METHODS[name]()(again), merged)


class Counting(MergeMethod):
    """Surveys as often as it is told, and remembers the totals."""

    def __init__(self, rounds: int, totals: tuple[float, ...] = ()) -> None:
        self.rounds, self.totals = rounds, totals

    @property
    def surveys(self) -> bool:
        return len(self.totals) < self.rounds

    def survey(self, inputs: TensorInputs) -> Tensor:
        return inputs.contributions[0].task_vector.sum()

    def settled(self, total: Tensor) -> MergeMethod:
        assert total.dtype == torch.float64
        return Counting(self.rounds, (*self.totals, total.item()))

    def rows(self, block: TensorInputs) -> Tensor:
        return block.zeros()


def test_settling_sums_over_all_tensors_in_float64_as_often_as_asked() -> None:
    tiny = 2.0**-40
    model = [inputs(client("a", [value])) for value in (1.0, tiny, -1.0)]
    passes = []
    settled = settle(Counting(2), lambda: passes.append(1) or iter(model))
    assert isinstance(settled, Counting)
    assert settled.totals == (tiny, tiny)
    assert len(passes) == 2


def test_a_method_that_needs_no_survey_never_sees_the_tensors() -> None:
    method = Avg()
    assert settle(method, lambda: pytest.fail("no pass was asked for")) is method
    for step in (lambda: method.survey(inputs(client("a", [1.0]))), lambda: method.settled(ONE)):
        with pytest.raises(NotImplementedError, match="Avg needs no survey"):
            step()


def test_a_fisher_that_is_asked_for_but_missing_names_the_client() -> None:
    bare = replace(client("a", [1.0]), fisher=None)
    with pytest.raises(SummaryError, match="client 'a' has no Fisher"):
        _ = inputs(bare).forget_domains[0].fisher

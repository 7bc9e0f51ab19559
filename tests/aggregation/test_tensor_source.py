import pytest
import torch

from fedunlearn.aggregation import MergeSettings, merge_summaries
from fedunlearn.aggregation.tensor_source import TensorSource
from fedunlearn.errors import SummaryError
from fedunlearn.summary import ClientSummary
from tests.pico import DOWN_0, changed, pico_round


def test_retain_clients_come_in_the_order_of_their_ids() -> None:
    source = TensorSource(pico_round()[::-1], alpha=0.1, eps0=1e-8)
    assert source.retain_ids == ("keep-0", "keep-1")
    inputs = source.inputs(DOWN_0, forget_fisher=True)
    assert [one.name for one in inputs.retain_clients] == ["keep-0", "keep-1"]
    assert source.shapes[DOWN_0] == tuple(inputs.shape)


def test_updates_are_the_clients_task_vectors() -> None:
    source = TensorSource(pico_round(), alpha=0.1, eps0=1e-8)
    for client, summary in zip(
        source.inputs(DOWN_0, forget_fisher=False).contributions, source.summaries, strict=True
    ):
        torch.testing.assert_close(client.task_vector, summary.task_vector(DOWN_0))


def test_forget_fishers_are_read_only_where_needed() -> None:
    source = TensorSource(pico_round(), alpha=0.1, eps0=1e-8)
    inputs = source.inputs(DOWN_0, forget_fisher=False)
    assert [c.client_id for c in inputs.contributions if c.fisher is None] == [
        "bio-0",
        "bio-1",
        "law-0",
    ]


def partly(summary: ClientSummary, kept: float) -> ClientSummary:
    return changed(summary, fisher={**summary.meta.fisher, "kept": kept})


@pytest.mark.parametrize(
    ("client", "merge", "fault"),
    [
        ("keep-0", MergeSettings(alpha=0.3), r"'keep-0'.*largest 0\.2 .*alpha=0\.3 needs more"),
        ("keep-0", MergeSettings(method="avg", alpha=0.3), "'keep-0'"),  # for the projection
        ("law-0", MergeSettings(alpha=0.3), "'law-0'"),
        ("bio-0", MergeSettings(), "'bio-0'.*pooled with 'bio-1'.*fisher_upload=all"),
        ("keep-0", MergeSettings(method="fisher"), "'keep-0'.*this merge method needs all"),
    ],
)
def test_fisher_entries_that_were_not_sent_are_missed(
    client: str, merge: MergeSettings, fault: str
) -> None:
    clients = [partly(s, 0.2) if s.meta.client_id == client else s for s in pico_round()]
    with pytest.raises(SummaryError, match=fault):
        merge_summaries(clients, merge)


def test_fisher_entries_that_nobody_uses_are_not_missed() -> None:
    sent = {"law-0": 0.2, "keep-0": 0.1, "keep-1": 1.0}
    clients = [partly(s, sent.get(s.meta.client_id, 1.0)) for s in pico_round()]
    merge_summaries(clients, MergeSettings())
    forget = [partly(s, 0.01) if s.meta.role == "forget" else s for s in pico_round()]
    merge_summaries(forget, MergeSettings(method="avg"))


@pytest.mark.parametrize("kept", [0.0, 1.5, -1, "all", True, float("nan")])
def test_a_fraction_that_is_none_is_refused(kept: object) -> None:
    summary = changed(pico_round()[0], fisher={"kept": kept})
    with pytest.raises(SummaryError, match=r"fisher\.kept must be a fraction"):
        summary.validate()

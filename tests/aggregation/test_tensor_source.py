import torch

from fedunlearn.aggregation.tensor_source import TensorSource
from tests.pico import DOWN_0, pico_round


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

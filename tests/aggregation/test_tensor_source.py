import torch
from hypothesis import given
from hypothesis import strategies as st

from fedunlearn.aggregation.tensor_source import SparseFisher, TensorSource
from tests.pico import DOWN_0, pico_round


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1e-45]), min_size=3, max_size=3)))
def test_sparse_round_trip(rows: list[list[float]]) -> None:
    dense = torch.tensor(rows).reshape(-1, 3)
    again = SparseFisher.of(dense).dense()
    assert again.dtype == dense.dtype
    assert torch.equal(again, dense)


def test_retain_fishers_are_processed_and_shared() -> None:
    source = TensorSource(pico_round(), alpha=0.1, eps0=1e-8, remember=True)
    inputs = source.inputs(DOWN_0, forget_fisher=True)
    direct = [one.fisher for one in inputs.retain_clients]
    for fishers in (source.retain_fishers(DOWN_0), source.retain_fishers(DOWN_0, inputs)):
        assert all(torch.equal(a, b) for a, b in zip(fishers, direct, strict=True))
    assert source.retain_ids == ("keep-0", "keep-1")


def test_forget_fishers_are_read_only_where_needed() -> None:
    source = TensorSource(pico_round(), alpha=0.1, eps0=1e-8, remember=False)
    inputs = source.inputs(DOWN_0, forget_fisher=False)
    assert [c.client_id for c in inputs.contributions if c.fisher is None] == [
        "bio-0",
        "bio-1",
        "law-0",
    ]

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.fisher import cut_fisher, keep_largest, pool
from tests.oracles import fisher as oracle

entries = st.just(0.0) | st.floats(2.0**-60, 1e6, width=32)
diagonals = st.lists(entries, min_size=1, max_size=40)
fractions = st.floats(0.01, 1.0)


def process_fisher(fisher: torch.Tensor, *, alpha: float, eps0: float) -> torch.Tensor:
    """Eq. 3 of one diagonal, all at once."""
    return cut_fisher([fisher], alpha=alpha, eps0=eps0).apply(pool([fisher]))


def test_pools_then_normalises_then_sparsifies() -> None:
    pooled = pool([torch.tensor([1.0, 0.5]), torch.tensor([0.0, 4.0])])
    assert pooled.tolist() == [0.5, 2.25]
    scaled = process_fisher(pooled, alpha=1.0, eps0=1e-8)
    torch.testing.assert_close(scaled, torch.tensor([0.5 / 2.25, 1.0]))


@given(diagonals, fractions)
@settings(deadline=None)
def test_agrees_with_the_oracle(values: list[float], alpha: float) -> None:
    found = process_fisher(torch.tensor(values), alpha=alpha, eps0=1e-8)
    expected = torch.tensor(oracle.process(values, alpha, 1e-8))
    assert ((found > 0) >= (expected > 0)).all()  # rounding can only make more ties
    kept = found > 0
    scaled = torch.tensor(oracle.process(values, 1.0, 1e-8), dtype=torch.float32)
    torch.testing.assert_close(found[kept], scaled[kept], rtol=1e-6, atol=0.0)


@given(diagonals, fractions)
@settings(deadline=None)
def test_scale_of_the_raw_fisher_hardly_matters(values: list[float], alpha: float) -> None:
    raw = torch.tensor(values)
    once = process_fisher(raw, alpha=alpha, eps0=0.0)
    assert torch.equal(process_fisher(raw * 4.0, alpha=alpha, eps0=0.0), once)


@given(diagonals, fractions)
@settings(deadline=None)
def test_stays_in_the_unit_interval_and_keeps_enough(values: list[float], alpha: float) -> None:
    found = process_fisher(torch.tensor(values), alpha=alpha, eps0=1e-8)
    positive = sum(value > 0 for value in values)
    assert found.dtype == torch.float32
    assert ((found >= 0) & (found <= 1)).all()
    assert (found > 0).sum() >= min(positive, max(1, int(alpha * len(values))))


@pytest.mark.parametrize("eps0", [0.0, 1e-8])
def test_all_zero_stays_all_zero(eps0: float) -> None:
    found = process_fisher(torch.zeros(3, 2), alpha=0.1, eps0=eps0)
    assert torch.equal(found, torch.zeros(3, 2))


def test_half_precision_input_is_computed_in_float32() -> None:
    tiny = torch.tensor([1e-8, 5e-9], dtype=torch.bfloat16)  # both 0 in float16
    found = process_fisher(tiny, alpha=1.0, eps0=1e-8)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor([0.5, 0.25]), rtol=1e-2, atol=0.0)


def test_sparsifying_keeps_ties_and_the_input() -> None:
    fisher = torch.tensor([[3.0, 1.0], [3.0, 2.0]])
    assert process_fisher(fisher, alpha=0.25, eps0=0.0).tolist() == [[1.0, 0.0], [1.0, 0.0]]
    cut = cut_fisher([fisher], alpha=0.25, eps0=0.0)
    assert fisher.tolist() == [[3.0, 1.0], [3.0, 2.0]]
    assert cut.sparsify(fisher.clone()).tolist() == [[3.0, 0.0], [3.0, 0.0]]


@given(st.lists(diagonals, min_size=1, max_size=3), fractions, st.sampled_from([0.0, 1e-8]))
@settings(deadline=None)
def test_entries_may_be_processed_apart(
    columns: list[list[float]], alpha: float, eps0: float
) -> None:
    """A cut is of the whole diagonal, and then any part of it can be gone through on its own."""
    size = min(map(len, columns))
    stack = [torch.tensor(column[:size]).reshape(-1, 1) for column in columns]
    whole = process_fisher(pool(stack), alpha=alpha, eps0=eps0)
    cut = cut_fisher(stack, alpha=alpha, eps0=eps0)
    parts = [cut.apply(pool([one[row : row + 1] for one in stack])) for row in range(size)]
    assert torch.equal(torch.cat(parts), whole)
    assert cut.keeps_any == bool(whole.any())


def test_pooling_never_returns_or_changes_its_input() -> None:
    only = torch.ones(2)
    pool([only]).add_(1.0)
    pool([only, only]).add_(1.0)
    assert torch.equal(only, torch.ones(2))


def test_pooling_refuses_nothing_and_differing_shapes() -> None:
    with pytest.raises(ValueError, match="nothing to pool"):
        pool([])
    with pytest.raises(ValueError, match=r"\(1, 2\) and \(2, 1\)"):
        pool([torch.ones(1, 2), torch.ones(2, 1)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_refuses_non_finite_entries(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        process_fisher(torch.tensor([1.0, bad]), alpha=0.5, eps0=1e-8)


@pytest.mark.parametrize("eps0", [-1e-8, float("nan")])
def test_refuses_a_negative_stabiliser(eps0: float) -> None:
    with pytest.raises(ValueError, match="eps0"):
        process_fisher(torch.ones(2), alpha=0.5, eps0=eps0)


@given(
    st.lists(st.just(0.0) | st.floats(0.0, 2.0**100, width=32), min_size=1, max_size=40),
    fractions,
    st.floats(0.01, 1.0),
    st.sampled_from([0.0, 1e-8, 1e-30]),
)
@settings(deadline=None)
def test_what_a_client_drops_changes_no_bit(
    values: list[float], kept: float, share: float, eps0: float
) -> None:
    raw = torch.tensor([values]).to(torch.bfloat16)
    sent = keep_largest(raw, kept)
    assert sent.dtype == torch.bfloat16
    for alpha in (kept, max(0.01, share * kept)):
        assert torch.equal(
            process_fisher(sent, alpha=alpha, eps0=eps0),
            process_fisher(raw, alpha=alpha, eps0=eps0),
        )


def test_only_the_largest_entries_are_sent() -> None:
    raw = torch.tensor([[1.0, 5.0, 3.0, 5.0, 2.0]], dtype=torch.bfloat16)
    assert keep_largest(raw, 0.2).tolist() == [[0.0, 5.0, 0.0, 5.0, 0.0]]
    assert raw[0, 0] == 1.0

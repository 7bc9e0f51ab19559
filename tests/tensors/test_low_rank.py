import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.low_rank import LowRank, task_vector, task_vector_norm, truncate
from fedunlearn.tensors.selection import strided


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_product_of_the_factors_and_not_of_their_means() -> None:
    one = task_vector(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0], [0.0]]), 1.0)
    two = task_vector(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0], [1.0]]), 1.0)
    assert torch.equal(one + two, torch.eye(2))


@pytest.mark.parametrize(("scaling", "factor"), [(8 / 4, 2.0), (8 / 4**0.5, 4.0)])
def test_scaling(scaling: float, factor: float) -> None:
    A, B = random(4, 6), random(5, 4, seed=1)
    torch.testing.assert_close(task_vector(A, B, scaling), factor * (B @ A))


def test_transposed_weights_get_the_transposed_update() -> None:
    A, B = random(2, 6), random(5, 2, seed=1)
    found = task_vector(A, B, 0.5, transposed=True)
    assert found.shape == (6, 5)
    assert found.is_contiguous()
    assert torch.equal(found, task_vector(A, B, 0.5).T)


def test_half_precision_factors_are_multiplied_in_float32() -> None:
    A, B = random(2, 3).bfloat16(), random(4, 2, seed=1).bfloat16()
    found = task_vector(A, B, 1.0)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), B.double() @ A.double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("a", "b"), [((2, 3), (4, 3)), ((3,), (4, 3)), ((2, 3), (4, 1))])
def test_refuses_factors_that_do_not_fit(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"A must be \(r, d_in\)"):
        task_vector(torch.ones(a), torch.ones(b), 1.0)


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 9), st.integers(0, 99))
@settings(deadline=None)
def test_truncation_error_is_that_of_the_dropped_singular_values(
    d_out: int, d_in: int, rank: int, seed: int
) -> None:
    delta = random(d_out, d_in, seed=seed)
    A, B, error = truncate(delta, rank)
    assert (A.shape, B.shape) == ((rank, d_in), (d_out, rank))
    assert A.dtype == B.dtype == torch.float32
    singular = torch.linalg.svdvals(delta.double())
    expected = (singular[rank:].norm() / singular.norm()).item()
    assert error == pytest.approx(expected, abs=1e-6)
    missing = torch.linalg.norm(delta - task_vector(A, B, 1.0)) / torch.linalg.norm(delta)
    assert missing.item() == pytest.approx(expected, abs=1e-5)


def test_a_low_rank_matrix_comes_back() -> None:
    delta = task_vector(random(3, 20), random(15, 3, seed=1), 2.0)
    assert truncate(delta, 3)[2] < 1e-6


def test_a_zero_matrix_has_no_error() -> None:
    A, B, error = truncate(torch.zeros(3, 4), 2)
    assert error == 0.0
    assert not A.any()
    assert not B.any()


@pytest.mark.parametrize(("shape", "rank"), [((3, 4), 0), ((3,), 1)])
def test_truncation_refuses_what_has_no_rank(shape: tuple[int, ...], rank: int) -> None:
    with pytest.raises(ValueError, match="rank"):
        truncate(torch.ones(shape), rank)


@given(st.integers(1, 6), st.integers(1, 7), st.lists(st.integers(1, 4), min_size=1, max_size=3))
@settings(deadline=None, max_examples=30)
def test_products_are_cut_and_added_up_without_multiplying_out(
    rows: int, columns: int, ranks: list[int]
) -> None:
    parts = [
        LowRank(random(rows, rank, seed=rank), random(rank, columns, seed=9 * rank))
        for rank in ranks
    ]
    dense = [one.left @ one.right for one in parts]
    total = LowRank.total(parts)
    assert total.shape == (rows, columns)
    assert total.left.shape[1] == sum(ranks)
    torch.testing.assert_close(total.dense(), torch.stack(dense).sum(0))
    torch.testing.assert_close(total[rows // 2 :].dense(), torch.stack(dense).sum(0)[rows // 2 :])
    torch.testing.assert_close(total.sample(), strided(total.dense().reshape(-1)))


def test_a_sample_of_a_large_product_is_of_its_own_entries() -> None:
    large = LowRank(random(1500, 2), random(2, 1000, seed=1))
    torch.testing.assert_close(large.sample(), strided(large.dense().reshape(-1)))


def test_refuses_factors_of_two_ranks() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 3\) make no matrix"):
        LowRank(random(2, 3), random(2, 3))


@pytest.mark.parametrize("scaling", [2.0, -0.5, 0.0])
def test_the_norm_from_factors_is_that_of_the_dense_product(scaling: float) -> None:
    draw = torch.Generator().manual_seed(3)
    A, B = torch.randn(4, 30, generator=draw), torch.randn(20, 4, generator=draw)
    dense = torch.linalg.norm(scaling * (B.double() @ A.double())).item()
    assert task_vector_norm(A, B, scaling) == pytest.approx(dense, rel=1e-12)

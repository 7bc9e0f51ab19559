import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.clustering import cluster, cosine_similarity, gram
from fedunlearn.tensors.low_rank import LowRank
from fedunlearn.tensors.sums import BLOCK
from tests.oracles.merge_methods import connected


def similarity(vectors: list[list[float]]) -> torch.Tensor:
    return cosine_similarity(gram([torch.tensor(vector) for vector in vectors]))


@given(st.integers(1, 7), st.integers(0, 999), st.sampled_from([-0.5, 0.0, 0.3, 0.6, 0.9]))
@settings(deadline=None, max_examples=60)
def test_single_linkage_is_connected_components(count: int, seed: int, threshold: float) -> None:
    source = torch.Generator().manual_seed(seed)
    vectors = torch.randn((count, 3), generator=source).tolist()
    found = cluster(similarity(vectors), threshold)
    assert [list(places) for places in found] == connected(vectors, threshold)


CHAIN = torch.tensor([[1.0, 0.7, 0.1], [0.7, 1.0, 0.65], [0.1, 0.65, 1.0]])


def test_the_linkages_part_where_a_chain_is_long() -> None:
    assert cluster(CHAIN, 0.6, linkage="single") == ((0, 1, 2),)
    assert cluster(CHAIN, 0.6, linkage="complete") == ((0, 1), (2,))
    assert cluster(CHAIN, 0.6, linkage="average") == ((0, 1), (2,))
    assert cluster(CHAIN, 0.37, linkage="average") == ((0, 1, 2),)


def test_the_threshold_itself_joins() -> None:
    assert cluster(torch.tensor([[1.0, 0.5], [0.5, 1.0]]), 0.5) == ((0, 1),)


def test_copies_reach_even_a_threshold_of_one() -> None:
    copies = [(torch.arange(1.0, 8.0) / 3.0).tolist()] * 4
    assert cluster(similarity(copies), 1.0) == ((0, 1, 2, 3),)


def test_cosine_of_known_angles() -> None:
    found = similarity([[1.0, 0.0], [3.0, 3.0], [-2.0, 0.0], [0.0, 0.0]])
    assert found[0].tolist() == pytest.approx([1.0, 0.5**0.5, -1.0, 0.0])
    assert found[3].tolist() == [0.0] * 4


def test_inner_products_beyond_one_block_add_up() -> None:
    ones = torch.ones(BLOCK + 3)
    assert gram([ones, -2 * ones]).tolist() == [
        [BLOCK + 3, -2 * (BLOCK + 3)],
        [-2 * (BLOCK + 3), 4 * (BLOCK + 3)],
    ]


def test_nobody_makes_no_cluster() -> None:
    assert cluster(cosine_similarity(gram([])), 0.6) == ()


@given(st.integers(0, 99), st.lists(st.integers(1, 4), min_size=1, max_size=4))
@settings(deadline=None, max_examples=30)
def test_inner_products_of_products_are_those_of_the_matrices(seed: int, ranks: list[int]) -> None:
    source = torch.Generator().manual_seed(seed)
    products = [
        LowRank(torch.randn(6, r, generator=source), torch.randn(r, 5, generator=source))
        for r in ranks
    ]
    exact = [one.left.double() @ one.right.double() for one in products]
    expected = torch.tensor([[(one * other).sum().item() for one in exact] for other in exact])
    torch.testing.assert_close(gram(products), expected.double(), rtol=1e-6, atol=1e-6)
    mixed = [*products[:-1], products[-1].dense()]
    torch.testing.assert_close(gram(mixed), expected.double(), rtol=1e-4, atol=1e-4)

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedunlearn.tensors.joint_svd import JointSvd

SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 7))


def products(
    shape: tuple[int, int], ranks: list[int], seed: int
) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
    source = torch.Generator().manual_seed(seed)
    factors = [
        (torch.randn((shape[0], r), generator=source), torch.randn((r, shape[1]), generator=source))
        for r in ranks
    ]
    return factors, [left.double() @ right.double() for left, right in factors]


@given(SHAPES, st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 999))
@settings(deadline=None, max_examples=60)
def test_products_decompose_as_their_dense_matrices(
    shape: tuple[int, int], ranks: list[int], seed: int
) -> None:
    factors, dense = products(shape, ranks, seed)
    for found in (JointSvd.of_products(factors), JointSvd.of(dense)):
        for matrix, right in zip(dense, found.rights, strict=True):
            torch.testing.assert_close(found.product(right), matrix, rtol=1e-4, atol=1e-4)
        k = len(found.singular)
        side_by_side = torch.cat(found.rights, dim=1)
        torch.testing.assert_close(found.basis.T @ found.basis, torch.eye(k).double())
        torch.testing.assert_close(side_by_side @ side_by_side.T, torch.eye(k).double())
        assert k <= min(shape[0], sum(ranks))
    same = JointSvd.of(dense).singular
    torch.testing.assert_close(JointSvd.of_products(factors).singular, same)


def test_directions_that_rounding_makes_are_dropped() -> None:
    ((left, right),), _ = products((30, 20), [2], seed=1)
    rounded = left @ right
    assert len(JointSvd.of([rounded, 2 * rounded]).singular) == 2
    assert len(JointSvd.of_products([(left, right), (2 * left, right)]).singular) == 2


def test_known_values() -> None:
    found = JointSvd.of([torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, -4.0]])])
    assert found.singular.tolist() == pytest.approx([5.0])
    shown = [(found.basis * right).abs().tolist()[0] for right in found.rights]
    assert shown[0] == pytest.approx([0.6, 0.0])
    assert shown[1] == pytest.approx([0.0, 0.8])


def test_nothing_at_all_has_no_direction() -> None:
    assert JointSvd.of([torch.zeros(2, 3)]).singular.numel() == 0

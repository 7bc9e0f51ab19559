import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedunlearn.tensors import squared_products
from fedunlearn.tensors.squared_products import add_squared_products

Use = tuple[Tensor, Tensor]


def slow(uses: list[Use]) -> Tensor:
    """The definition, in float64, one sequence and one use after the other."""
    total = torch.zeros(uses[0][0].shape[-1], uses[0][1].shape[-1], dtype=torch.float64)
    for b in range(uses[0][0].shape[0]):
        total += sum((lt[b].double().T @ rt[b].double() for lt, rt in uses), 0 * total) ** 2
    return total


def drawn(
    seed: int, sizes: tuple[int, int, int], tokens: list[int], dtype: torch.dtype
) -> list[Use]:
    batch, rows, columns = sizes
    chance = torch.Generator().manual_seed(seed)

    def operand(length: int, width: int) -> Tensor:
        return torch.randn(batch, length, width, generator=chance).to(dtype)

    return [(operand(length, rows), operand(length, columns)) for length in tokens]


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(*[st.integers(1, 7)] * 3),
    tokens=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    block=st.sampled_from([1, 5, 12, 10**6]),
)
def test_it_is_its_definition_whatever_the_block(
    seed: int,
    sizes: tuple[int, int, int],
    tokens: list[int],
    dtype: torch.dtype,
    block: int,
) -> None:
    uses = drawn(seed, sizes, tokens, dtype)
    start = torch.rand(sizes[1:])
    total = start.clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(squared_products, "_BLOCK", {"cpu": block})
        add_squared_products(total, uses)
    expected = start.double() + slow(uses)
    torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=1e-5)


def test_two_uses_add_before_they_are_squared() -> None:
    total, one = torch.zeros(1, 1), torch.ones(1, 1, 1)
    add_squared_products(total, [(one, one), (-one, one)])
    assert total.item() == 0.0
    add_squared_products(total, [(one, one), (one, one)])
    assert total.item() == 4.0


def test_half_precision_operands_are_not_rounded_on_the_way() -> None:
    ones = torch.ones(1, 257, 1, dtype=torch.bfloat16)
    total = torch.zeros(1, 1)
    add_squared_products(total, [(ones, ones)])  # 257 is no bfloat16
    assert total.item() == 257.0**2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_cuda_agrees_with_the_definition(dtype: torch.dtype) -> None:
    uses = drawn(0, (3, 65, 130), [37, 5], dtype)
    total = torch.zeros(65, 130, device="cuda")
    add_squared_products(total, [(left.cuda(), right.cuda()) for left, right in uses])
    torch.testing.assert_close(total.cpu().double(), slow(uses), rtol=1e-4, atol=1e-3)

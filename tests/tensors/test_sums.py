import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.sums import blocks, norm, square_sum, total, widened


@given(st.integers(0, 40_000), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_sums_are_those_of_exact_arithmetic(size: int, seed: int) -> None:
    terms = torch.randn(2, size, generator=torch.Generator().manual_seed(seed)).double()
    for row, found in zip(terms.tolist(), total(terms).tolist(), strict=True):
        assert found == pytest.approx(math.fsum(row), abs=1e-11 * (1 + sum(map(abs, row))))


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    terms = torch.randn(3_000_017, generator=torch.Generator().manual_seed(0))
    threads, found = torch.get_num_threads(), set()
    try:
        for number in (1, 2, 3, 7):
            torch.set_num_threads(number)
            found.add((total(terms.double()).item(), square_sum(terms)))
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1


def test_norms_are_accumulated_in_float64() -> None:
    assert norm(torch.full((1 << 20,), 2.0**-80)) == 2.0**-70
    assert norm(torch.full((3, 1 << 19), 1e-3)) == pytest.approx(
        float(torch.tensor(1e-3)) * (3 * 2**19) ** 0.5, rel=1e-14
    )
    assert norm(torch.zeros(0)) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_is_overwritten(dtype: torch.dtype) -> None:
    values = torch.full((3,), 2.0, dtype=dtype)
    widened(values).zero_()
    assert square_sum(values) == square_sum(values) == 12.0


def test_blocks_cover_everything_once() -> None:
    assert [*blocks(7, 3)] == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert [*blocks(0, 3)] == []

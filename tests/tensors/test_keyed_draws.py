"""Keyed draws: known bits, right distributions, any part alone, no collisions of seeds."""

import math

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.keyed_draws import (
    _TO_UNIT,
    keyed_normal,
    keyed_normal_64,
    keyed_order,
    keyed_uniform,
)

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


def test_pytorchs_generator_keeps_32_bits_of_a_seed() -> None:
    """Why there are keys at all. If this fails, PyTorch has mended it."""
    one, other = (torch.Generator().manual_seed(seed) for seed in (5, 5 + 2**32))
    assert torch.equal(torch.randn(9, generator=one), torch.randn(9, generator=other))


def test_the_numbers_are_the_ciphers() -> None:
    """By the definition: the normal quantile at AES-256-CTR's 32-bit words, in float64."""
    counter = (3 << 96).to_bytes(16, "big")  # stream 3, block 0
    words = Cipher(algorithms.AES(KEY), modes.CTR(counter)).encryptor().update(bytes(4 * 500))
    for drawn, start in zip(
        keyed_normal(KEY, 0, 500, stream=3).tolist(), range(0, 2000, 4), strict=True
    ):
        uniform = int.from_bytes(words[start : start + 4], "little", signed=True) / 2**31
        expected = math.sqrt(2) * torch.erfinv(torch.tensor(uniform, dtype=torch.float64)).item()
        assert drawn == pytest.approx(expected, rel=1e-4, abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 50), st.integers(1, 50))
def test_any_part_is_drawn_alone(start: int, size: int) -> None:
    whole = keyed_normal(KEY, 0, 100, stream=1)
    torch.testing.assert_close(
        keyed_normal(KEY, start, size, stream=1), whole[start : start + size], rtol=1e-6, atol=0
    )


def test_normal_numbers_are_normal() -> None:
    drawn = keyed_normal(KEY, 0, 1 << 20).double()
    n = drawn.numel()
    assert bool(drawn.isfinite().all())
    assert abs(drawn.mean().item()) < 5 / n**0.5
    assert abs(drawn.var().item() - 1) < 5 * (2 / n) ** 0.5
    assert abs(drawn.pow(3).mean().item()) < 5 * (15 / n) ** 0.5
    assert abs(drawn.pow(4).mean().item() - 3) < 5 * (96 / n) ** 0.5
    ordered = torch.special.ndtr(drawn.sort().values)
    steps = torch.arange(1, n + 1, dtype=torch.float64) / n
    assert float((ordered - steps).abs().max()) < 2 / n**0.5  # Kolmogorov and Smirnov, p 0.0007
    assert abs((drawn[1:] * drawn[:-1]).mean().item()) < 5 / n**0.5


def test_the_extremes_are_finite() -> None:
    """All bits set or clear must not reach the quantile at 0 or 1."""
    ends = torch.tensor([-(2**31), 2**31 - 1], dtype=torch.int32).float()
    assert bool(ends.mul(_TO_UNIT).erfinv().isfinite().all())


def test_streams_and_keys_differ() -> None:
    drawn = [keyed_normal(key, 0, 64, stream=s) for key in (KEY, OTHER) for s in (0, 1)]
    for index, one in enumerate(drawn):
        assert all(not torch.isclose(one, other).any() for other in drawn[:index])


def test_uniform_and_double_normal_numbers() -> None:
    uniform, normal = keyed_uniform(KEY, (1 << 16,)), keyed_normal_64(KEY, (1 << 16,))
    assert uniform.dtype == normal.dtype == torch.float64
    assert 0 <= float(uniform.min()) < float(uniform.max()) < 1
    assert abs(float(uniform.mean()) - 0.5) < 5 * (1 / 12 / 2**16) ** 0.5
    assert abs(float(normal.var()) - 1) < 5 * (2 / 2**16) ** 0.5
    assert bool(normal.isfinite().all())


def test_orders_are_permutations_and_uniform() -> None:
    orders = keyed_order(KEY, (6000, 3))
    assert torch.equal(orders.sort(-1).values, torch.arange(3).expand(6000, 3))
    counts = torch.bincount((orders * torch.tensor([9, 3, 1])).sum(-1))
    counts = counts[counts > 0].double()
    assert len(counts) == 6
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 25.7  # chi square, 5 degrees, p 0.0001


def test_nothing_is_drawn_of_nothing() -> None:
    assert keyed_uniform(KEY, (3, 0)).shape == (3, 0)

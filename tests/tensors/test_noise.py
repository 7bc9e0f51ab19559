"""Zero-sum noise has the paper's distribution, drawn with fewer numbers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.noise import (
    Noise,
    independent_noise,
    rounded_away,
    zero_sum_matrix,
    zero_sum_noise,
)

KEY = bytes(range(32))


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 12))
def test_the_covariance_is_that_of_centred_and_rescaled_draws(m: int) -> None:
    """Eq. 4 applied to m unit vectors z_k gives the matrix whose square is the covariance."""
    identity = torch.eye(m, dtype=torch.float64)
    centred = (m / (m - 1)) ** 0.5 * (identity - identity.mean(0))
    matrix = zero_sum_matrix(m)
    torch.testing.assert_close(matrix @ matrix.T, centred @ centred.T, atol=1e-14, rtol=0)
    torch.testing.assert_close(matrix.sum(0), torch.zeros(m - 1).double(), atol=1e-14, rtol=0)
    assert matrix.square().sum(1).tolist() == pytest.approx([1.0] * m)


def test_one_copy_is_refused() -> None:
    with pytest.raises(ValueError, match="needs m >= 2 copies, got 1"):
        zero_sum_matrix(1)


@pytest.mark.parametrize("m", [2, 3, 5])
def test_sum_variance_and_correlation(m: int) -> None:
    n, sigma = 1 << 16, 0.3
    drawn = torch.stack(
        [zero_sum_noise(KEY, k, m, sigma).add_(torch.zeros(n), 0) for k in range(1, m + 1)]
    ).double()
    assert float(drawn.sum(0).abs().max()) < 1e-5 * sigma * m
    expected = sigma**2 * (m / (m - 1)) * (torch.eye(m) - 1 / m).double()
    torch.testing.assert_close(drawn @ drawn.T / n, expected, atol=8 * sigma**2 / n**0.5, rtol=0)


def test_two_copies_have_opposite_noise_exactly() -> None:
    one, other = (zero_sum_noise(KEY, k, 2, 1.0).add_(torch.zeros(9), 0) for k in (1, 2))
    assert torch.equal(one, -other)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 40), st.integers(1, 20))
def test_any_part_is_drawn_alone(start: int, size: int) -> None:
    noise = zero_sum_noise(KEY, 2, 4, 0.5)
    whole = noise.add_(torch.ones(60), 0)
    part = noise.add_(torch.ones(size), start)
    torch.testing.assert_close(part, whole[start : start + size], atol=1e-6, rtol=0)


def test_without_sigma_there_is_no_noise() -> None:
    assert independent_noise(KEY, 0.0) == Noise(KEY, {})
    assert zero_sum_noise(KEY, 1, 2, 0.0).add_(torch.ones(3), 0).tolist() == [1.0, 1.0, 1.0]


def test_what_rounding_leaves() -> None:
    """Near 1, bfloat16 has steps of 2**-7 above and 2**-8 below."""
    weights = torch.ones(1 << 14)
    same, squares = rounded_away(weights, independent_noise(KEY, 1e-4), torch.bfloat16)
    assert (same, squares) == (1 << 14, 0.0)
    same, squares = rounded_away(weights, independent_noise(KEY, 0.1), torch.float32)
    assert same < 10
    assert (squares / (1 << 14)) ** 0.5 == pytest.approx(0.1, rel=0.03)

"""int8 by absmax against a slow loop, and its laws."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedunlearn.tensors.rounding import LEVELS, absmax_int8

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 7))
SCALES = st.sampled_from([1e-30, 1e-3, 1.0, 1e4])


def draw(shape: tuple[int, ...], scale: float, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def slow(weight: Tensor, channel: int) -> list[list[float]]:
    """Entry by entry in float64."""
    rows = weight.double().tolist() if channel == 0 else weight.double().T.tolist()
    found = []
    for row in rows:
        scale = max(abs(one) for one in row) / LEVELS or 1.0
        found.append([round(one / scale) * scale for one in row])
    return found if channel == 0 else [list(column) for column in zip(*found, strict=True)]


@given(SHAPES, SCALES, st.integers(0, 99), st.sampled_from([0, 1]))
def test_it_is_the_slow_one(shape: tuple[int, int], scale: float, seed: int, channel: int) -> None:
    weight = draw(shape, scale, seed)
    expected = torch.tensor(slow(weight, channel), dtype=torch.float64)
    found = absmax_int8(weight, channel=channel).double()
    # a quotient within float32 rounding of a tie may go to either side: one level apart
    level = weight.double().abs().amax(1 - channel, keepdim=True) / LEVELS
    apart = (found - expected).abs() > 1e-5 * level * LEVELS
    assert int(apart.sum()) <= 1
    assert bool(((found - expected).abs() <= 1.001 * level).all())


@given(SHAPES, SCALES, st.integers(0, 99))
def test_nothing_moves_by_more_than_half_a_level(
    shape: tuple[int, int], scale: float, seed: int
) -> None:
    weight = draw(shape, scale, seed)
    level = weight.abs().amax(1, keepdim=True) / LEVELS
    moved = (absmax_int8(weight) - weight).abs()
    assert bool((moved <= 0.5001 * level + 1e-6 * weight.abs()).all())


@given(SHAPES, SCALES, st.integers(0, 99))
def test_channels_signs_and_a_second_time(shape: tuple[int, int], scale: float, seed: int) -> None:
    weight = draw(shape, scale, seed)
    once = absmax_int8(weight)
    torch.testing.assert_close(absmax_int8(once), once, rtol=1e-5, atol=0)
    assert torch.equal(absmax_int8(-weight), -once)
    assert torch.equal(absmax_int8(weight[:1]), once[:1])
    assert torch.equal(absmax_int8(weight.T, channel=1), once.T)


def test_by_hand() -> None:
    weight = torch.tensor([[127.0, 1.4, -0.6], [0.0, 0.0, 0.0]])
    assert absmax_int8(weight).tolist() == [[127.0, 1.0, -1.0], [0.0, 0.0, 0.0]]
    assert absmax_int8(weight.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("channel", [0, 2, -1])
def test_any_dimension_may_be_the_channel(channel: int) -> None:
    weight = draw((2, 3, 4), 1.0, 0)
    found = absmax_int8(weight, channel=channel)
    for place in range(weight.shape[channel]):
        part = weight.select(channel, place).reshape(1, -1)
        assert torch.equal(found.select(channel, place).reshape(1, -1), absmax_int8(part))

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.quadratic import maximise_quadratic


def test_a_free_maximum() -> None:
    curvature = torch.tensor([[2.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    found = maximise_quadratic(curvature, torch.tensor([2.0, 2.0], dtype=torch.float64), start)
    torch.testing.assert_close(found, torch.tensor([2.0, 0.5], dtype=torch.float64))


def test_a_bound_is_met_exactly() -> None:
    curvature = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    start = torch.tensor([1.0, 1.0], dtype=torch.float64)
    found = maximise_quadratic(curvature, torch.tensor([-9.0, 0.0], dtype=torch.float64), start)
    assert found[0].item() == 0.0
    torch.testing.assert_close(found[1].item(), 1.5)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 10_000), st.booleans())
@settings(deadline=None)
def test_meets_its_optimality_conditions(m: int, rank: int, seed: int, twins: bool) -> None:
    draw = torch.Generator().manual_seed(seed)
    factor = torch.rand(m, rank, generator=draw, dtype=torch.float64) + 0.01
    if twins:
        factor[m // 2] = factor[0]
    scale = 10.0 ** (8 * torch.rand(m, 1, generator=draw, dtype=torch.float64) - 4)
    curvature = (factor * scale) @ (factor * scale).T
    start = torch.randn(m, generator=draw, dtype=torch.float64).relu() / scale[:, 0]
    slope = curvature @ torch.randn(m, generator=draw, dtype=torch.float64) / scale[:, 0]
    y = maximise_quadratic(curvature, slope, start)
    gain = (slope - curvature @ (y - start)) / scale[:, 0]
    size = 1e-9 * (1.0 + (y * scale[:, 0]).max() + (slope / scale[:, 0]).abs().max())
    assert (y >= 0.0).all()
    assert (gain <= size).all()
    assert (gain[y > 0.0].abs() <= size).all()

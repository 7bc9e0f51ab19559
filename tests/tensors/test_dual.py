import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.dual import Dual, damage, stationarity
from fedunlearn.tensors.dual_newton import solve_newton
from fedunlearn.tensors.sums import BLOCK


def problem(m: int, n: int, seed: int) -> tuple[Dual, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    dual = Dual(
        torch.randn(n, generator=draw),
        torch.rand(m, n, generator=draw),
        torch.rand(m, generator=draw, dtype=torch.float64) + 0.1,
    )
    return dual, 3.0 * torch.rand(m, generator=draw, dtype=torch.float64)


def value(dual: Dual, multipliers: torch.Tensor) -> float:
    """The Lagrangian at its minimiser, from its definition."""
    update = dual.recover(multipliers).update
    constraint = 0.5 * dual.fishers.double() @ update**2 - dual.budgets
    distance = 0.5 * ((update - dual.base.double()) ** 2).sum()
    return (distance + multipliers @ constraint).item()


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 999))
@settings(deadline=None)
def test_gradient_and_curvature_are_derivatives_of_the_dual(m: int, n: int, seed: int) -> None:
    dual, at = problem(m, n, seed)
    damages, curvature = dual.damages_and_curvature(at)
    step = 1e-5
    for k in range(m):
        nudge = step * torch.eye(m, dtype=torch.float64)[k]
        slope = (value(dual, at + nudge) - value(dual, at - nudge)) / (2 * step)
        assert slope == pytest.approx((damages - dual.budgets)[k].item(), rel=1e-4, abs=1e-6)
        bend = (dual.damages(at - nudge) - dual.damages(at + nudge)) / (2 * step)
        torch.testing.assert_close(bend, curvature[k], rtol=1e-5, atol=1e-7)


def test_every_way_to_a_damage_agrees() -> None:
    dual, at = problem(3, 2 * BLOCK + 7, seed=1)
    damages, _ = dual.damages_and_curvature(at)
    solution = dual.recover(at)
    update = solution.update
    for k in range(3):
        exact = 0.5 * np.sum(dual.fishers[k].double().numpy() * update.numpy() ** 2)
        for found in (dual.damages(at), damages, solution.damages):
            assert found[k].item() == pytest.approx(exact, rel=1e-13)
        assert dual.damage_of(k, at) == pytest.approx(exact, rel=1e-13)
        assert damage(update, dual.fishers[k]) == pytest.approx(exact, rel=1e-13)


def test_damage_is_accumulated_in_float64() -> None:
    update = torch.full((3 * BLOCK,), 1e-3)
    update[0] = 1e4
    exact = 0.5 * (1e8 + (3 * BLOCK - 1) * float(torch.tensor(1e-3)) ** 2)
    assert damage(update, torch.ones(3 * BLOCK)) == pytest.approx(exact, rel=1e-14)


def test_damage_leaves_float64_inputs_alone() -> None:
    update, fisher = torch.full((3,), 2.0, dtype=torch.float64), torch.ones(3)
    assert damage(update, fisher) == damage(update, fisher) == 6.0


def test_damage_refuses_differing_shapes() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(3, 2\)"):
        damage(torch.ones(2, 3), torch.ones(3, 2))


def test_stationarity_sees_a_wrong_update() -> None:
    dual, at = problem(2, 10, seed=3)
    solution = dual.recover(at)
    assert solution.stationarity < 1e-15
    base, shrinkage = dual.base.double(), at @ dual.fishers.double()
    assert stationarity(solution.update, base, shrinkage) < 1e-14
    assert stationarity(solution.update * 1.01, base, shrinkage) > 1e-3


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    dual, at = problem(3, 5 * BLOCK + 1234, seed=4)
    found = []
    threads = torch.get_num_threads()
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            damages, curvature = dual.damages_and_curvature(at)
            found.append((damages.tolist(), curvature.tolist(), dual.recover(at).damages.tolist()))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


def test_a_thinned_problem_has_nearly_the_same_answer() -> None:
    dual, _ = problem(2, 40_000, seed=5)
    dual = Dual(dual.base, dual.fishers, 0.1 * dual.damages(torch.zeros(2, dtype=torch.float64)))
    thinned = dual.thinned(7)
    assert thinned.base.numel() == 5715
    torch.testing.assert_close(solve_newton(thinned)[0], solve_newton(dual)[0], rtol=0.1, atol=0.0)

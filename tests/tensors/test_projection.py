import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.dual import damage
from fedunlearn.tensors.projection import Projection, Status, project
from tests.oracles import projection as oracle
from tests.tensors.problems import Problem, problems

ONE_TWO = (torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0]))


def solve(problem: Problem) -> Projection:
    return project(problem.base, problem.fishers, problem.budgets)


class TestKnownValues:
    def test_two_clients_of_which_one_binds(self) -> None:
        found = project(torch.tensor([2.0, 2.0]), ONE_TWO, [0.5, 0.5])
        assert found.multipliers == pytest.approx((2 * math.sqrt(2) - 1, 0.0))
        assert found.update.tolist() == pytest.approx([math.sqrt(0.5)] * 2)
        assert found.status == Status.SOLVED

    def test_one_client(self) -> None:
        found = project(torch.tensor([2.0, 1.0]), [torch.tensor([1.0, 0.0])], [0.5])
        assert found.multipliers == pytest.approx((1.0,))
        assert found.update.tolist() == [1.0, 1.0]
        assert (found.damage_before, found.damage_after) == ((2.0,), (0.5,))

    def test_the_papers_routine_is_feasible_but_not_nearest(self) -> None:
        found = project(torch.tensor([2.0, 2.0]), ONE_TWO[::-1], [0.5, 0.5], solver="bisection")
        assert found.update.tolist() == pytest.approx([0.579, 0.815], abs=1e-3)
        assert found.status == Status.FEASIBLE
        assert not found.certified

    def test_the_papers_routine_is_exact_for_one_client(self) -> None:
        draw = torch.Generator().manual_seed(0)
        base, fisher = torch.randn(60, generator=draw), torch.rand(60, generator=draw)
        newton = project(base, [fisher], [0.1])
        paper = project(base, [fisher], [0.1], solver="bisection")
        assert paper.status == newton.status == Status.SOLVED
        assert paper.multipliers == pytest.approx(newton.multipliers, rel=1e-10)

    def test_the_papers_routine_lets_a_small_excess_pass(self) -> None:
        base = torch.tensor([1.0])
        found = project(base, [torch.ones(1)], [0.49999], solver="bisection")
        assert torch.equal(found.update, base)


class TestNothingToDo:
    def test_feasible_already_gives_the_base_itself(self) -> None:
        base = torch.tensor([[1e-3, -0.0], [float(2**-140), 5.0]])
        found = project(base, [torch.ones(2, 2), torch.zeros(2, 2)], [1e9, 1e-12])
        assert found.update is base
        assert found.multipliers == (0.0, 0.0)
        assert found.damage_after == found.damage_before
        assert found.status == Status.UNTOUCHED

    def test_without_a_retain_client_the_status_says_so(self) -> None:
        base = torch.ones(2)
        found = project(base, [], [])
        assert found.update is base
        assert "no retain client" in found.status
        assert found.certified

    @pytest.mark.parametrize("solver", ["newton", "bisection"])
    def test_infinite_budgets(self, solver: str) -> None:
        base = torch.full((4,), 1e6)
        found = project(base, [torch.ones(4)] * 2, [math.inf] * 2, solver=solver)
        assert found.update is base

    def test_a_budget_of_zero_is_fine_where_there_is_no_damage(self) -> None:
        assert project(torch.zeros(3), [torch.ones(3)], [0.0]).status == Status.UNTOUCHED

    def test_one_infinite_budget_among_finite_ones_takes_no_part(self) -> None:
        base = torch.tensor([2.0, 1.0])
        found = project(base, [torch.tensor([1.0, 0.0]), torch.ones(2)], [0.5, math.inf])
        assert found.update.tolist() == [1.0, 1.0]
        assert found.multipliers[1] == 0.0


class TestAgainstTheOracles:
    @given(problems(coordinates=st.integers(1, 3000)))
    @settings(max_examples=300, deadline=None)
    def test_kkt_residuals(self, problem: Problem) -> None:
        found = solve(problem)
        assert found.certified
        measured = oracle.kkt_residuals(*problem.arrays(), found.multipliers)
        assert max(measured.values()) <= 1e-8, measured
        assert found.stats.iterations <= 60

    @given(problems(coordinates=st.integers(1, 8), clients=st.integers(1, 4), moderate=True))
    @settings(max_examples=150, deadline=None)
    def test_nearest_update(self, problem: Problem) -> None:
        base, fishers, budgets = problem.arrays()
        expected = oracle.nearest_update(base, fishers, budgets)
        found = solve(problem).update.double().numpy()
        assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(base)


class TestLaws:
    @given(problems(coordinates=st.integers(1, 400)))
    @settings(max_examples=150, deadline=None)
    def test_the_delivered_update_meets_every_budget(self, problem: Problem) -> None:
        found = solve(problem)
        after = [damage(found.update, fisher) for fisher in problem.fishers]
        assert found.damage_after == pytest.approx(after, rel=1e-14)
        assert all(b <= budget for b, budget in zip(after, problem.budgets, strict=True))

    @given(problems(coordinates=st.integers(1, 400)))
    @settings(max_examples=100, deadline=None)
    def test_only_shrinks_and_only_on_the_union_of_supports(self, problem: Problem) -> None:
        found = solve(problem)
        outside = ~torch.stack(problem.fishers).any(dim=0)
        bits = torch.int32
        assert torch.equal(found.update[outside].view(bits), problem.base[outside].view(bits))
        assert (found.update.abs() <= problem.base.abs()).all()
        assert (found.update * problem.base >= 0).all()

    @given(problems(coordinates=st.integers(1, 50)))
    @settings(max_examples=60, deadline=None)
    def test_projecting_again_changes_nothing(self, problem: Problem) -> None:
        once = solve(problem).update
        assert project(once, problem.fishers, problem.budgets).update is once

    @given(problems(coordinates=st.integers(1, 50)), st.randoms(use_true_random=False))
    @settings(max_examples=60, deadline=None)
    def test_the_order_of_clients_hardly_matters(self, problem: Problem, rng: object) -> None:
        order = list(range(len(problem.budgets)))
        rng.shuffle(order)  # type: ignore[attr-defined]
        other = project(
            problem.base, [problem.fishers[k] for k in order], [problem.budgets[k] for k in order]
        )
        torch.testing.assert_close(other.update, solve(problem).update, rtol=1e-5, atol=1e-30)

    @given(problems(coordinates=st.integers(1, 50)))
    @settings(max_examples=60, deadline=None)
    def test_wider_budgets_move_the_update_less(self, problem: Problem) -> None:
        wider = project(problem.base, problem.fishers, [2.0 * b for b in problem.budgets])
        tight = solve(problem)
        moved = [(p.update - problem.base).double().norm().item() for p in (wider, tight)]
        assert moved[0] <= moved[1] * (1 + 1e-5) + 1e-30

    @given(problems(coordinates=st.integers(1, 50), clients=st.integers(1, 4)))
    @settings(max_examples=40, deadline=None)
    def test_the_papers_routine_stays_within_its_tolerance(self, problem: Problem) -> None:
        found = project(problem.base, problem.fishers, problem.budgets, solver="bisection")
        for after, budget in zip(found.damage_after, problem.budgets, strict=True):
            assert after <= budget + max(1e-4 * budget, 1e-12)

    @given(problems(coordinates=st.integers(1, 50), clients=st.integers(2, 6)))
    @settings(max_examples=40, deadline=None)
    def test_the_exact_update_is_no_farther_than_the_papers(self, problem: Problem) -> None:
        paper = project(problem.base, problem.fishers, problem.budgets, solver="bisection")
        allowed = [b + max(1e-4 * b, 1e-12) for b in problem.budgets]
        exact = project(problem.base, problem.fishers, allowed)
        near, far = ((p.update - problem.base).double().norm() for p in (exact, paper))
        assert near <= far * (1 + 1e-6) + 1e-30


class TestWarmStart:
    @given(
        problems(coordinates=st.integers(1, 400)),
        st.lists(st.sampled_from([0.0, 1e-20, 1e-3, 1.0, 1e4, 1e20, 1e300]), min_size=16),
    )
    @settings(max_examples=150, deadline=None)
    def test_any_start_leads_to_the_same_update(
        self, problem: Problem, starts: list[float]
    ) -> None:
        start = starts[: len(problem.budgets)]
        warm = project(problem.base, problem.fishers, problem.budgets, start=start)
        assert warm.certified
        torch.testing.assert_close(warm.update, solve(problem).update, rtol=1e-5, atol=1e-30)

    @given(problems(coordinates=st.integers(2, 400)), st.floats(1.01, 1.2))
    @settings(max_examples=100, deadline=None)
    def test_a_neighbours_multipliers_lead_to_the_same_update(
        self, problem: Problem, step: float
    ) -> None:
        start = solve(problem).multipliers
        scaled = problem.base * step
        warm = project(scaled, problem.fishers, problem.budgets, start=start)
        cold = project(scaled, problem.fishers, problem.budgets)
        assert warm.certified
        torch.testing.assert_close(warm.update, cold.update, rtol=1e-5, atol=1e-30)

    def test_a_sweep_takes_fewer_iterations(self) -> None:
        draw = torch.Generator().manual_seed(4)
        base, fishers = torch.randn(2000, generator=draw), torch.rand(3, 2000, generator=draw) ** 6
        budgets = [0.2 * damage(base, fisher) for fisher in fishers]
        cold = warm = 0
        start = None
        for gamma in (0.1 * step for step in range(1, 26)):
            cold += project(base * gamma, list(fishers), budgets).stats.iterations
            found = project(base * gamma, list(fishers), budgets, start=start)
            warm, start = warm + found.stats.iterations, found.multipliers
        assert warm <= 0.75 * cold

    def test_its_own_multipliers_leave_nothing_to_do(self) -> None:
        base, fisher = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 0.0])
        assert project(base, [fisher], [0.5], start=[1.0]).stats.iterations == 0

    def test_the_papers_routine_does_not_take_it(self) -> None:
        base = torch.tensor([2.0, 1.0])
        plain = project(base, [torch.ones(2)], [0.5], solver="bisection")
        other = project(base, [torch.ones(2)], [0.5], solver="bisection", start=[1e9])
        assert torch.equal(plain.update, other.update)


class TestHardCases:
    @pytest.mark.parametrize("budget", [1e-12, 1e-6, 1.0, 1e6])
    @pytest.mark.parametrize("copies", [2, 16])
    def test_the_same_client_many_times(self, budget: float, copies: int) -> None:
        draw = torch.Generator().manual_seed(1)
        base, fisher = 1e3 * torch.randn(200, generator=draw), torch.rand(200, generator=draw)
        alone = project(base, [fisher], [budget])
        found = project(base, [fisher] * copies, [budget] * copies)
        assert found.certified
        assert sum(found.multipliers) == pytest.approx(alone.multipliers[0], rel=1e-9)

    def test_clients_that_differ_by_rounding(self) -> None:
        draw = torch.Generator().manual_seed(2)
        fisher = torch.rand(1000, generator=draw)
        twins = [fisher * (1 + 1e-7 * torch.randn(1000, generator=draw)) for _ in range(12)]
        found = project(torch.randn(1000, generator=draw), twins, [1e-3] * 12)
        assert found.certified

    def test_budgets_and_sensitivities_spread_over_twenty_orders(self) -> None:
        draw = torch.Generator().manual_seed(3)
        base = torch.randn(200, generator=draw) * 10 ** (12 * torch.rand(200, generator=draw) - 6)
        fishers = list(10 ** (-10 * torch.rand(12, 200, generator=draw)))
        before = [damage(base, fisher) for fisher in fishers]
        spread = (20 * torch.rand(12, generator=draw)).tolist()
        found = project(base, fishers, [b * 10**-s for b, s in zip(before, spread, strict=True)])
        assert found.certified

    def test_a_budget_below_what_float64_resolves_is_reported_and_still_met(self) -> None:
        found = project(torch.tensor([2.0, 3.0]), [torch.ones(2)], [1e-200])
        assert found.damage_after[0] <= 1e-200
        assert found.status == Status.UNCERTIFIED

    def test_rounding_that_breaks_a_budget_takes_a_hair_off(self) -> None:
        broken = 0
        for seed in range(50):
            draw = torch.Generator().manual_seed(seed)
            base, fisher = torch.randn(3, generator=draw) + 3.0, torch.rand(3, generator=draw)
            found = project(base, [fisher], [0.01])
            rounded = (base.double() / (1 + found.multipliers[0] * fisher.double())).float()
            broken += damage(rounded, fisher) > 0.01
            assert found.damage_after[0] <= 0.01
            assert (found.update - rounded).abs().max() <= 1e-6 * rounded.abs().max()
        assert broken > 5

    def test_an_update_with_rows_and_columns_keeps_its_shape(self) -> None:
        base = torch.arange(12.0).reshape(3, 4)
        found = project(base.T, [torch.ones(4, 3)], [1.0])
        assert found.update.shape == (4, 3)
        assert torch.equal(base, torch.arange(12.0).reshape(3, 4))


class TestRefusals:
    @pytest.mark.parametrize(
        ("fishers", "budgets", "text"),
        [
            (1, [], "1 Fisher diagonals but 0 budgets"),
            (1, [-1.0], "budgets must be >= 0"),
            (1, [math.nan], "budgets must be >= 0"),
            (2, [1.0, 0.0], "budget of 0"),
        ],
    )
    def test_budgets(self, fishers: int, budgets: list[float], text: str) -> None:
        with pytest.raises(ValueError, match=text):
            project(torch.ones(2), [torch.ones(2)] * fishers, budgets)

    @pytest.mark.parametrize("start", [[], [-1.0], [math.nan], [math.inf], [1.0, 1.0]])
    def test_starting_multipliers(self, start: list[float]) -> None:
        with pytest.raises(ValueError, match="starting multipliers must be 1 finite"):
            project(torch.ones(2), [torch.ones(2)], [1.0], start=start)

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_non_finite_base(self, bad: float) -> None:
        with pytest.raises(ValueError, match="NaN or infinite"):
            project(torch.tensor([1.0, bad]), [torch.ones(2)], [math.inf])

    def test_shapes(self) -> None:
        with pytest.raises(ValueError, match="differ"):
            project(torch.ones(2), [torch.ones(3)], [1.0])

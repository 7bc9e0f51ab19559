import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.aggregation import (
    Merger,
    MergeResult,
    MergeSettings,
    PerClientEpsilon,
    RelativeEpsilon,
    merge_summaries,
)
from fedunlearn.errors import InputError, SummaryError
from fedunlearn.merging import MERGE_METHODS
from fedunlearn.summary import ClientSummary, layout_digest, open_summaries, save_summary
from fedunlearn.tensors.dual import damage
from tests.oracles.merge_methods import fulm, knots
from tests.oracles.merge_pipeline import dense, firm_base, nearest_within
from tests.pico import DOWN_0, DOWN_1, changed, pico_round, pico_summary

NAMES = [DOWN_0, DOWN_1]
METHODS = sorted(MERGE_METHODS)


def identical(one: MergeResult, other: MergeResult) -> bool:
    return one.report == other.report and all(
        torch.equal(one.delta[name], other.delta[name]) for name in one.delta
    )


def some(*ids: str) -> list[ClientSummary]:
    return [s for s in pico_round() if s.meta.client_id in ids]


@pytest.mark.parametrize("gamma", [1.0, 2.5])
def test_firm_without_projection_is_the_oracle(gamma: float) -> None:
    result = merge_summaries(pico_round(), MergeSettings(gamma=gamma))
    assert sorted(result.delta) == NAMES
    for name in NAMES:
        raw, kept = firm_base(pico_round(), name, scaling=2.0, alpha=0.1, eps0=1e-8)
        report = result.report.tensors[name]
        assert result.delta[name].dtype == torch.float32
        np.testing.assert_allclose(result.delta[name].numpy(), gamma * raw, atol=2e-6, rtol=2e-5)
        assert report.raw_norm == pytest.approx(np.linalg.norm(raw), rel=1e-5)
        assert report.norm == pytest.approx(gamma * np.linalg.norm(raw), rel=1e-5)
        for client, fisher in kept.items():
            harm = 0.5 * (fisher * (gamma * raw) ** 2).sum()
            assert report.damage_before[client] == pytest.approx(harm, rel=1e-4)
            assert report.damage_after == report.damage_before
            assert report.multipliers[client] == 0.0


def test_firm_with_projection_is_the_oracle_for_one_retain_client() -> None:
    clients = some("bio-0", "law-0", "keep-0")
    raw, kept = firm_base(clients, DOWN_0, scaling=2.0, alpha=0.1, eps0=1e-8)
    budget = 0.1 * 0.5 * float((kept["keep-0"] * raw**2).sum())
    result = merge_summaries(clients, MergeSettings(epsilon=budget))
    expected = nearest_within(raw, kept["keep-0"], budget)
    np.testing.assert_allclose(result.delta[DOWN_0].numpy(), expected, atol=2e-6, rtol=2e-5)
    report = result.report.tensors[DOWN_0]
    assert report.damage_after["keep-0"] <= budget < report.damage_before["keep-0"]
    assert report.multipliers["keep-0"] > 0
    assert report.certified
    assert set(report.residuals) == {
        "stationarity",
        "feasibility",
        "dual_feasibility",
        "complementarity",
    }


@pytest.mark.parametrize("method", METHODS)
def test_damage_is_reported_and_bounded_for_every_method(method: str) -> None:
    loose = MergeSettings(method=method, gamma=2.0)
    free = merge_summaries(pico_round(), loose)
    bound = merge_summaries(pico_round(), replace(loose, epsilon=RelativeEpsilon(relative=0.3)))
    assert free.report.mean_damage > 0
    for client, budget in bound.report.epsilon_resolved.items():
        assert budget == pytest.approx(0.3 * free.report.mean_damage, rel=1e-9)
        for name in NAMES:
            assert free.report.tensors[name].damage_after[client] > 0
            assert bound.report.tensors[name].damage_after[client] <= budget


def test_reported_damage_is_of_the_delivered_update() -> None:
    merger = Merger(pico_round())
    result = merger.merge(MergeSettings(gamma=1.7, epsilon=RelativeEpsilon(relative=0.3)))
    for name in NAMES:
        clients = merger._source.inputs(name, forget_fisher=False).retain_clients
        expected = [damage(result.delta[name], client.fisher) for client in clients]
        found = list(result.report.tensors[name].damage_after.values())
        assert found == pytest.approx(expected, rel=1e-14)


@given(st.permutations(range(5)))
@settings(max_examples=5, deadline=None)
def test_order_of_clients_does_not_matter(order: Sequence[int]) -> None:
    clients = pico_round()
    merge = MergeSettings(epsilon=RelativeEpsilon(relative=0.3))
    assert identical(
        merge_summaries([clients[place] for place in order], merge), merge_summaries(clients, merge)
    )


def test_from_disk_is_the_same(tmp_path: Path) -> None:
    for summary in pico_round():
        save_summary(summary, tmp_path / summary.meta.client_id)
    merge = MergeSettings(gamma=2.0, epsilon=RelativeEpsilon(relative=0.3))
    assert identical(
        merge_summaries(open_summaries(tmp_path), merge), merge_summaries(pico_round(), merge)
    )


@pytest.mark.parametrize("keep", [0, 1, 4])
def test_a_sweep_is_the_same_as_single_merges(keep: int) -> None:
    merger = Merger(pico_round(), keep=keep)
    for method in ("firm", "avg", "firm"):
        for gamma in (0.5, 2.0, 1.0):
            merge = MergeSettings(method=method, gamma=gamma, epsilon=RelativeEpsilon(relative=0.3))
            assert identical(merger.merge(merge), merge_summaries(pico_round(), merge))


def test_a_sweep_computes_each_raw_merge_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    kind = MERGE_METHODS["firm"]
    real = kind.on
    monkeypatch.setattr(
        kind, "on", lambda self, inputs: calls.append(inputs.name) or real(self, inputs)
    )
    merger = Merger(pico_round())
    for gamma in (0.5, 1.0, 2.0):
        for epsilon in (math.inf, RelativeEpsilon(relative=0.3), 1e-3):
            merger.merge(MergeSettings(gamma=gamma, epsilon=epsilon))
    assert calls == NAMES


def test_a_result_is_not_changed_by_the_next() -> None:
    merger = Merger(pico_round())
    first = merger.merge(MergeSettings())
    before = first.delta[DOWN_0].clone()
    first.delta[DOWN_1].zero_()
    assert merger.merge(MergeSettings()).delta[DOWN_1].any()
    assert torch.equal(first.delta[DOWN_0], before)


def test_damage_grows_with_the_square_of_gamma() -> None:
    once, twice = (merge_summaries(pico_round(), MergeSettings(gamma=g)) for g in (1.0, 2.0))
    assert twice.report.mean_damage == pytest.approx(4 * once.report.mean_damage, rel=1e-9)


def test_a_budget_for_each_client() -> None:
    free = merge_summaries(pico_round(), MergeSettings()).report.tensors[DOWN_0].damage_before
    budgets = PerClientEpsilon(per_client={"keep-0": math.inf, "keep-1": free["keep-1"] / 4})
    result = merge_summaries(pico_round(), MergeSettings(epsilon=budgets))
    report = result.report.tensors[DOWN_0]
    assert report.multipliers["keep-0"] == 0.0
    assert report.multipliers["keep-1"] > 0.0
    assert report.damage_after["keep-1"] <= free["keep-1"] / 4
    assert result.report.epsilon_resolved == budgets.per_client


def test_the_paper_routine_is_feasible_too() -> None:
    merge = MergeSettings(epsilon=RelativeEpsilon(relative=0.3), solver="bisection")
    result = merge_summaries(pico_round(), merge)
    for report in result.report.tensors.values():
        for client, budget in result.report.epsilon_resolved.items():
            assert report.damage_after[client] <= budget * (1 + 1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", [math.inf, 1e-6, RelativeEpsilon(relative=0.3)])
def test_without_retain_clients(method: str, epsilon: float | RelativeEpsilon) -> None:
    result = merge_summaries(some("bio-0", "law-0"), MergeSettings(method=method, epsilon=epsilon))
    assert any("no retain client" in warning for warning in result.report.warnings)
    assert result.report.epsilon_resolved == {}
    assert all(report.damage_before == {} for report in result.report.tensors.values())
    assert all(update.isfinite().all() for update in result.delta.values())


@pytest.mark.parametrize("method", METHODS)
def test_without_forget_clients(method: str) -> None:
    result = merge_summaries(
        some("keep-0"),
        MergeSettings(method=method, epsilon=RelativeEpsilon(relative=0.3)),
    )
    assert any("no forget client" in warning for warning in result.report.warnings)
    assert all(update.isfinite().all() for update in result.delta.values())


def test_an_all_zero_fisher_is_warned_of() -> None:
    clients = some("bio-0", "keep-0")
    silent = changed(pico_summary("mute-0", "retain", "general", seed=9))
    fisher = {name: torch.zeros_like(value) for name, value in silent.fisher.items()}
    clients.append(
        ClientSummary(
            meta=changed(silent, layout_digest=layout_digest(fisher)).meta,
            adapter_config=silent.adapter_config,
            adapter=silent.adapter,
            fisher=fisher,
        )
    )
    result = merge_summaries(clients, MergeSettings(epsilon=RelativeEpsilon(relative=0.3)))
    assert result.report.warnings == (
        f"the Fisher of 'mute-0' is all zero in 2 weights, e.g. {DOWN_0}",
    )
    assert result.report.tensors[DOWN_0].damage_before["mute-0"] == 0.0


def test_gamma_zero_leaves_the_model_alone() -> None:
    merge = MergeSettings(gamma=0.0, epsilon=RelativeEpsilon(relative=0.3))
    result = merge_summaries(pico_round(), merge)
    assert not any(update.any() for update in result.delta.values())


def test_ten_clients_of_a_domain_weigh_as_one() -> None:
    one = some("bio-0", "keep-0")
    ten = [
        *(pico_summary(f"bio-{n}", "forget", "biology", seed=1) for n in range(10)),
        *some("keep-0"),
    ]
    firm, total = (
        [
            merge_summaries(clients, MergeSettings(method=method)).delta[DOWN_0]
            for clients in (one, ten)
        ]
        for method in ("firm", "sum")
    )
    torch.testing.assert_close(firm[0], firm[1], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(10 * total[0], total[1])


def test_facts_about_the_whole_model_are_reported_and_do_not_depend_on_the_order() -> None:
    merge = MergeSettings(method="fulm", options={"threshold": 0.0, "scope": "model"})
    result = merge_summaries(pico_round(), merge)
    ids = sorted(summary.meta.client_id for summary in pico_round())
    assert sorted(one for cluster in result.report.facts["clusters"] for one in cluster) == ids
    assert list(result.report.facts["similarity"]) == ids
    assert identical(merge_summaries(pico_round()[::-1], merge), result)
    assert merge_summaries(pico_round(), MergeSettings()).report.facts == {}


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.6])
def test_fulm_clusters_by_both_weights_together(threshold: float) -> None:
    clients = sorted(pico_round(), key=lambda s: s.meta.client_id)
    model = [[dense(s, name, 2.0).ravel().tolist() for s in clients] for name in NAMES]
    expected = fulm(model, threshold=threshold, density=0.3, averaged=False)
    merge = MergeSettings(method="fulm", options={"threshold": threshold})
    result = merge_summaries(pico_round(), merge)
    for name, row in zip(NAMES, expected, strict=True):
        found = result.delta[name].numpy().ravel()
        np.testing.assert_allclose(found, row, atol=2e-6, rtol=2e-5)


def test_knots_of_summaries_is_the_oracle_on_dense_matrices() -> None:
    forget = [s for s in pico_round() if s.meta.role == "forget"]
    merge = MergeSettings(method="knots", options={"density": 0.5})
    result = merge_summaries(pico_round(), merge)
    for name in NAMES:
        expected = knots([dense(s, name, 2.0) for s in forget], 0.5, scaled=True)
        np.testing.assert_allclose(result.delta[name].numpy(), expected, atol=2e-5, rtol=2e-4)


def test_the_matched_control_has_firms_norm_and_says_how_nearly() -> None:
    firm, control = (
        merge_summaries(pico_round(), MergeSettings(method=method)).report
        for method in ("firm", "firm_matched")
    )
    norms = [
        math.hypot(*(one.raw_norm for one in report.tensors.values())) for report in (firm, control)
    ]
    assert norms[1] == pytest.approx(norms[0], rel=1e-6)
    assert control.facts["firm_norm"] == pytest.approx(norms[0], rel=1e-6)
    assert control.facts["mask_mismatches"] == 0
    assert control.facts["relative_norm_mismatch"] < 1e-6
    single = [one.raw_norm for one in firm.tensors.values()]
    assert [one.raw_norm for one in control.tensors.values()] != pytest.approx(single, rel=1e-3)


def test_a_sweep_surveys_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    kind = MERGE_METHODS["fulm"]
    real = kind.survey
    monkeypatch.setattr(
        kind, "survey", lambda self, inputs: calls.append(inputs.name) or real(self, inputs)
    )
    merger = Merger(pico_round())
    for gamma in (0.5, 1.0, 2.0):
        merger.merge(MergeSettings(method="fulm", gamma=gamma))
    assert calls == NAMES


def test_negating_what_was_never_learnt_is_warned_of() -> None:
    merge = MergeSettings(method="task_arithmetic")
    (warning,) = merge_summaries(pico_round(), merge).report.warnings
    assert "3 of them, e.g. 'bio-0' (npo), trained to unlearn it" in warning
    learnt = [changed(s, objective="retain_nll") for s in pico_round()]
    assert not merge_summaries(learnt, merge).report.warnings


def test_ranks_together_are_as_the_dense_result() -> None:
    clients = [pico_summary(seed=1, r=4), pico_summary("law-0", "forget", "law", seed=2, r=8)]
    result = merge_summaries(clients, MergeSettings(method="avg"))
    expected = (clients[0].task_vector(DOWN_0) + clients[1].task_vector(DOWN_0)) / 2
    torch.testing.assert_close(result.delta[DOWN_0], expected)


def test_report_says_who_and_what() -> None:
    report = merge_summaries(
        pico_round(), MergeSettings(method="ties", options={"density": "0.25"})
    ).report
    assert report.options["density"] == 0.25
    assert report.base_model == "pico"
    assert [client.client_id for client in report.clients] == [
        "bio-0",
        "bio-1",
        "keep-0",
        "keep-1",
        "law-0",
    ]
    assert not report.warnings


def test_bad_input() -> None:
    with pytest.raises(SummaryError, match="no summary"):
        merge_summaries([], MergeSettings())
    with pytest.raises(InputError, match="did you mean 'firm'"):
        merge_summaries(pico_round(), MergeSettings(method="frm"))
    with pytest.raises(InputError, match=r"alpha=0\.2.*0\.1"):
        Merger(pico_round()).merge(MergeSettings(alpha=0.2))
    with pytest.raises(InputError, match=f"{DOWN_0}.*gamma=1e"):
        merge_summaries(pico_round(), MergeSettings(gamma=1e300))

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.metrics.wilson import wilson
from fedunlearn.scores import Score
from fedunlearn.study import Chances, Study, build_study
from tests.oracles import study as oracle
from tests.study.sweeps import BASE, PROVENANCE, SWEEP, Shares, answers, record, records

FEW = Chances(resamples=200)


def study(**changes: object) -> Study:
    given = {"base": answers(BASE), "records": records(), "chances": FEW, **changes}
    return build_study(PROVENANCE, given.pop("base"), given.pop("records"), **given)  # type: ignore[arg-type]


def test_every_pair_is_matched_once_by_the_papers_rule() -> None:
    found = [one.comparison for one in study().matched]
    assert [(c.setting.merge, c.setting.gamma, c.other.gamma) for c in found] == [
        ("firm", 0.5, 0.5),
        ("firm", 1.0, 1.0),
        ("firm", 2.0, 2.0),
    ]
    assert [c.close for c in found] == [True, True, False]
    assert found[1].largest_gap == pytest.approx(0.025)


def test_a_reference_is_matched_with_all_others() -> None:
    found = study(references=["sum"]).matched
    assert {(one.comparison.setting.merge, one.comparison.other.merge) for one in found} == {
        ("sum", "firm")
    }


def test_budgets_of_one_method_are_variants() -> None:
    tight = [record("firm", 1.0, SWEEP["firm"][1.0], epsilon=1e-5)]
    found = study(records=[*records(), *tight])
    assert found.variants == ("firm", "sum", "firm eps=1e-05")
    pairs = {(m.comparison.setting.merge, m.comparison.other.merge) for m in found.matched}
    assert pairs == {("firm", "sum"), ("firm", "firm eps=1e-05"), ("sum", "firm eps=1e-05")}
    same = [m for m in found.matched if m.comparison.other.merge == "firm eps=1e-05"]
    assert same[1].comparison.retain_gain == 0
    assert (same[1].retain_interval.low, same[1].retain_interval.high) == (0.0, 0.0)  # type: ignore[union-attr]


def test_differences_are_paired_question_by_question() -> None:
    """Nested right answers: unpaired, an interval around 0.4 would be twice as wide."""
    one = study(chances=Chances(resamples=2000)).matched[1]
    assert one.comparison.retain_gain == pytest.approx(0.4)
    assert one.retain_interval is not None
    half = 1.96 * np.sqrt(0.4 * 0.6 / 40)
    assert one.retain_interval.low == pytest.approx(0.4 - half, abs=0.03)
    assert one.retain_interval.high == pytest.approx(0.4 + half, abs=0.03)
    assert one.retain_interval.excludes_zero


def test_areas_are_the_oracles_over_the_common_range() -> None:
    gaps = {(g.forget_set, g.kept): g for g in study().envelopes}
    assert set(gaps) == {(f, k) for f in ("bio", "law") for k in ("retain", "utility")}
    gap = gaps["law", "utility"]
    assert (gap.low, gap.high) == pytest.approx((0.1, 0.55))
    for name, area in (("firm", gap.first_area), ("sum", gap.second_area)):
        law, tool = ([s[i] for s in SWEEP[name].values()] for i in (1, 3))
        law = [round(round(x * 40) / 40, 9) for x in law]
        assert area == pytest.approx(oracle.envelope_area(law, tool, 0.1, 0.55))
    assert gap.difference == pytest.approx(gap.first_area - gap.second_area)
    assert gap.interval.low <= gap.difference <= gap.interval.high


def test_without_a_common_range_there_is_no_gap() -> None:
    apart = {"firm": {1.0: (0.9, 0.9, 0.9, 0.9)}, "sum": {1.0: (0.1, 0.1, 0.1, 0.1)}}
    assert study(records=records(apart)).envelopes == ()


def test_the_frontier_and_how_sure_it_is() -> None:
    found = {(s.variant, s.gamma): s for s in study().standings if s.kept_kind == "utility"}
    on = {key for key, one in found.items() if one.on_frontier}
    assert on == {("firm", 0.5), ("firm", 1.0), ("firm", 2.0), ("sum", 2.0)}
    assert found["sum", 2.0].share == 1.0
    assert found["sum", 0.5].share == 0.0
    assert found["firm", 1.0].forget == pytest.approx(0.3)


def test_accuracies_have_wilson_intervals() -> None:
    found = study()
    assert found.base is not None
    accuracy = found.base["tool"].choice_accuracy
    assert accuracy is not None
    assert (accuracy.mean, accuracy.n, accuracy.interval) == (0.9, 40, wilson(36, 40))
    recall = found.base["bio"].rouge_l_recall
    assert recall is not None
    assert (recall.interval.low, recall.interval.high) == (1.0, 1.0)


def test_means_are_those_of_reports() -> None:
    found = study()
    for point in found.points:
        assert point.sets is not None
        shares = SWEEP[point.variant][point.gamma]
        for (name, one), share in zip(point.sets.items(), shares, strict=True):
            expected = Score.of(answers(shares)[name].rouge_l_recall)
            assert expected is not None
            assert one.rouge_l_recall is not None
            assert one.rouge_l_recall.mean == expected.mean == pytest.approx(share, abs=0.013)


def test_the_same_seed_gives_the_same_study_and_another_other_intervals() -> None:
    assert study() == study()
    other = study(chances=Chances(resamples=200, seed=1))
    assert other.matched[1].comparison == study().matched[1].comparison
    assert other.matched[1].retain_interval != study().matched[1].retain_interval


def test_a_sweep_without_evaluation_has_norms_only() -> None:
    bare = [replace(one, scores=None) for one in records()]
    found = study(base=None, records=bare)
    assert found.metric is None
    assert (found.matched, found.envelopes, found.standings) == ((), (), ())
    assert [point.norm for point in found.of("sum")] == [1.0, 2.0, 4.0]


def test_points_that_are_not_evaluated_yet_take_no_part() -> None:
    cut = records()
    cut[1] = replace(cut[1], scores=None)
    found = study(records=cut)
    assert {s.gamma for s in found.standings if s.variant == "firm"} == {0.5, 2.0}
    assert found.points[1].sets is None


def test_subsets_of_domains_are_kept_apart() -> None:
    grown = [record("sum", 1.0, BASE, domains=("bio",)), *records()]
    found = study(records=grown)
    assert len(found.standings) == 2 * 6
    assert [(len(p.domains), p.norm) for p in found.growing] == [(1, 1.0), (2, 2.0)]
    assert found.domains == ("bio", "law")


@pytest.mark.parametrize(
    ("gammas", "expected"),
    [({"firm": [0.5, 2], "sum": [2, 3]}, 2), ({"firm": [0.5, 1.25, 3]}, 1.25), ({}, None)],
)
def test_the_ablation_is_at_the_gamma_most_variants_share(
    gammas: dict[str, list[float]], expected: float | None
) -> None:
    points = {name: dict.fromkeys(map(float, row)) for name, row in gammas.items()}
    assert study(base=None, records=records(points)).ablation_gamma == expected


@pytest.mark.parametrize("bad", [{"confidence": 1.0}, {"confidence": 0.0}, {"resamples": 0}])
def test_chances_out_of_range(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="confidence must be in"):
        Chances(**bad)  # type: ignore[arg-type]


fortieths = st.integers(0, 40).map(lambda right: right / 40)
row = st.tuples(fortieths, fortieths, fortieths, fortieths)


@given(firm=st.lists(row, min_size=1, max_size=4), other=st.lists(row, min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_swapping_two_variants_mirrors_the_envelopes(
    firm: list[Shares], other: list[Shares]
) -> None:
    gammas = [1.0, 2.0, 3.0, 4.0]
    points = {
        "firm": dict(zip(gammas, firm, strict=False)),
        "sum": dict(zip(gammas, other, strict=False)),
    }
    swapped = {"sum": points["sum"], "firm": points["firm"]}
    chances = Chances(resamples=20)
    one, two = (study(records=records(s), chances=chances).envelopes for s in (points, swapped))
    for a, b in zip(one, two, strict=True):
        assert (a.low, a.high) == (b.low, b.high)
        assert a.difference == pytest.approx(-b.difference)
        assert a.interval.low == pytest.approx(-b.interval.high)

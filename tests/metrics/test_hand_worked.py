"""Values worked by hand, or taken from public definitions; others have got each of them wrong."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.metrics import (
    ArithmeticTruthRatio,
    ChoiceAccuracy,
    ExtractionStrength,
    ForgetQuality,
    GeometricTruthRatio,
    MembershipAuc,
    MinK,
    MinKPlusPlus,
    ModelUtility,
    Observed,
    OptionProbability,
    PrivLeak,
    RougeLF1,
    ZLib,
)
from fedunlearn.metrics.model_utility import PARTS, SETS
from tests.oracles import evaluation as oracle

P_AT_40 = [1, 0.990, 0.919, 0.766, 0.579, 0.405, 0.266, 0.165, 0.0971, 0.0541, 0.0286, 0.0143]


def seen(log_probs: list[float], greedy: list[bool] | None = None) -> Observed:
    flags = [False] * len(log_probs) if greedy is None else greedy
    return Observed(torch.tensor(log_probs, dtype=torch.float64), torch.tensor(flags))


def test_truth_ratios_of_one_paraphrase_and_two_wrong_answers() -> None:
    geometric, arithmetic = GeometricTruthRatio(), ArithmeticTruthRatio()
    assert geometric([1.0], [1.0, 3.0]) == pytest.approx(0.368, abs=5e-4)
    assert arithmetic([1.0], [1.0, 3.0]) == pytest.approx(0.568, abs=5e-4)
    ratio = geometric([1.0], [1.0, 3.0])
    assert geometric.forget(ratio) == pytest.approx(0.368, abs=5e-4)
    assert geometric.retain(ratio) == pytest.approx(0.632, abs=5e-4)
    assert geometric.forget(1 / ratio) == pytest.approx(0.368, abs=5e-4)


def test_the_stabiliser_decides_where_a_model_is_destroyed() -> None:
    """Losses of 40 nats: all answers alike, yet the public constant makes the ratio 0."""
    assert GeometricTruthRatio()([40.0], [40.0]) < 1e-6
    assert GeometricTruthRatio(stabiliser=0.0)([40.0], [40.0]) == pytest.approx(1.0)
    assert OptionProbability()(40.0, [40.0] * 3) < 1e-6
    assert OptionProbability(stabiliser=0.0)(40.0, [40.0] * 3) == pytest.approx(0.25)


@given(st.lists(st.floats(0, 20), min_size=1, max_size=5), st.floats(0, 20))
@settings(max_examples=50, deadline=None)
def test_the_arithmetic_mean_is_never_below_the_geometric(wrong: list[float], right: float) -> None:
    low, high = GeometricTruthRatio()([right], wrong), ArithmeticTruthRatio()([right], wrong)
    assert low <= high * (1 + 1e-9)


def test_forget_quality_at_40_samples_takes_only_certain_values() -> None:
    metric = ForgetQuality()
    own = [float(place) for place in range(40)]
    for gap, expected in enumerate(P_AT_40, start=3):
        shifted = [value + gap - 0.5 for value in own]
        assert metric(own, shifted) == pytest.approx(expected, rel=6e-3)
        assert metric(own, shifted) == pytest.approx(oracle.ks_p(own, shifted), abs=1e-9)


def test_forget_quality_of_a_model_against_itself_is_one() -> None:
    assert ForgetQuality()([0.3, 0.1, 0.2], [0.1, 0.2, 0.3]) == 1.0


@pytest.mark.parametrize(
    ("auc", "percent", "flag"),
    [
        (0.981, -96.2, "under-unlearned"),
        (2e-5, 100.0, "over-unlearned"),
        (0.5, 0.0, None),
    ],
)
def test_privleak_flags_what_is_far_from_zero(auc: float, percent: float, flag: str | None) -> None:
    metric = PrivLeak()
    assert metric(auc, 0.5) == pytest.approx(percent, abs=0.01)
    assert metric.flag(metric(auc, 0.5)) == flag


def test_extraction_strength_by_the_public_loop_is_never_zero() -> None:
    strength = ExtractionStrength(drops_last=False)
    assert strength(seen([-1.0] * 4, [True] * 4)) == 1.0
    assert strength(seen([-1.0] * 4, [True, False, True, True])) == 0.5
    assert strength(seen([-1.0] * 4, [True, True, True, False])) == 0.25
    assert (
        ExtractionStrength(drops_last=False, reaches_zero=True)(
            seen([-1.0] * 4, [True, True, True, False])
        )
        == 0.0
    )
    assert ExtractionStrength()(seen([-1.0] * 5, [True] * 4 + [False])) == 1.0
    assert ExtractionStrength()(seen([-1.0], [True])) == 0.0


@given(st.lists(st.booleans(), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_extraction_strength_is_the_loop_s(greedy: list[bool]) -> None:
    found = ExtractionStrength(drops_last=False)(seen([0.0] * len(greedy), greedy))
    assert found == pytest.approx(oracle.extraction_strength(greedy), abs=1e-12)
    assert found >= 1 / len(greedy) - 1e-12


def test_min_k_takes_at_least_one_token_and_leaves_the_last_out() -> None:
    log_probs = [-1.0, -2.0, -3.0, -4.0, -100.0]
    assert MinK(share=0.4)(seen(log_probs)) == 4.0
    assert MinK(share=0.4, drops_last=False)(seen(log_probs)) == 52.0
    assert MinK(share=0.01)(seen(log_probs)) == 4.0
    assert MinK()(seen([-1.0])) == 0.0
    with pytest.raises(ValueError, match="share"):
        MinK(share=0.0)


def test_min_k_plus_plus_of_a_uniform_distribution_is_held_by_the_least_variance() -> None:
    log_probs = torch.tensor([-math.log(4)] * 2, dtype=torch.float64)
    flat = Observed(log_probs, torch.ones(2).bool(), log_probs.clone(), torch.zeros(2))
    assert MinKPlusPlus(drops_last=False)(flat) == 0.0
    with pytest.raises(ValueError, match="mean and variance"):
        MinKPlusPlus()(seen([-1.0, -2.0]))


def test_zlib_divides_by_the_compressed_bytes_of_the_targets() -> None:
    one = Observed(torch.tensor([-3.0]), torch.tensor([True]), text="a" * 100)
    assert ZLib()(one) == pytest.approx(3.0 / 12)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=8),
    st.lists(st.integers(0, 4), min_size=1, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_an_auc_counts_pairs_and_turns_with_its_sides(
    members: list[int], others: list[int]
) -> None:
    area = MembershipAuc()
    assert area(members, others) == pytest.approx(oracle.auc(members, others))
    assert area(members, others) + area(others, members) == pytest.approx(1.0)


def test_an_auc_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="members and others"):
        MembershipAuc()([], [1.0])
    with pytest.raises(ValueError, match="not a number"):
        MembershipAuc()([math.nan], [1.0])


def test_model_utility_is_the_harmonic_mean_of_all_nine() -> None:
    parts = {f"{name}/{part}": 0.5 for name in SETS for part in PARTS}
    assert ModelUtility()(parts) == pytest.approx(0.5)
    assert ModelUtility()({**parts, "retain/truth_ratio": 0.0}) == 0.0
    del parts["world_facts/probability"]
    with pytest.raises(ValueError, match="world_facts/probability"):
        ModelUtility()(parts)


def test_a_tie_gets_expected_credit_whatever_the_order() -> None:
    credit = ChoiceAccuracy()
    assert credit([-1.0, -1.0, -2.0], 1) == credit([-1.0, -1.0, -2.0], 0) == 0.5
    assert credit([-1.0, -1.0, -2.0], 2) == 0.0
    assert credit([-2.0, -1.0], 1) == 1.0


def test_muse_compares_words_and_open_unlearning_their_stems() -> None:
    assert RougeLF1()("he walks", "he walked") == 0.5
    assert RougeLF1(stemmed=True)("he walks", "he walked") == 1.0

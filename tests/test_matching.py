import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedunlearn.matching import CLOSE, Setting, compare_all, match


def at(merge: str, gamma: float, *forget: float, kept: float | None = 0.9) -> Setting:
    names = ("a", "b", "c")
    return Setting(merge, gamma, dict(zip(names, forget, strict=False)), kept, kept)


def test_the_smallest_largest_gap_is_taken_whatever_is_kept() -> None:
    target = at("firm", 1, 0.3, 0.3)
    near, far = at("sum", 2, 0.32, 0.28, kept=0.0), at("sum", 1, 0.3, 0.4, kept=1.0)
    assert match(target, [far, near]) is near


def test_ties_go_to_the_smaller_sum_and_then_to_the_lower_gamma() -> None:
    target = at("firm", 1, 0.5, 0.5)
    both_off, one_off = at("sum", 0.1, 0.6, 0.4), at("sum", 3, 0.5, 0.6)
    assert match(target, [both_off, one_off]) is one_off
    mirrored = at("sum", 2, 0.5, 0.4)
    assert match(target, [one_off, mirrored]) is mirrored


def test_gaps_that_differ_by_rounding_alone_are_ties() -> None:
    target = at("firm", 1, 0.3)
    above, below = at("sum", 2, 0.3 + 0.1), at("sum", 1, 0.3 - 0.1)
    assert abs(0.4 - 0.3) != abs(0.2 - 0.3)
    assert match(target, [above, below]) is below


def test_without_candidates_there_is_no_match() -> None:
    with pytest.raises(ValueError, match="empty"):
        match(at("firm", 1, 0.5), [])


def test_every_pair_once_and_gains_are_a_minus_b() -> None:
    settings = [
        at("firm", 2, 0.1, kept=0.7),
        at("firm", 1, 0.3, kept=0.8),
        at("sum", 1, 0.33, kept=0.9),
        at("firm_base", 1, 0.5, kept=None),
    ]
    found = compare_all(settings, ["firm", "firm_base"])
    assert [(c.setting.merge, c.setting.gamma, c.other.merge) for c in found] == [
        ("firm", 1, "sum"),
        ("firm", 2, "sum"),
        ("firm", 1, "firm_base"),
        ("firm", 2, "firm_base"),
        ("firm_base", 1, "sum"),
    ]
    first = found[0]
    assert first.gaps == {"a": pytest.approx(0.03)}
    assert first.close
    assert first.retain_gain == pytest.approx(-0.1)
    assert not found[1].close
    assert found[2].retain_gain is None


def test_a_gap_at_the_limit_is_close() -> None:
    (found,) = compare_all([at("firm", 1, 0.3), at("sum", 1, 0.3 + CLOSE)], ["firm"])
    assert found.close


def test_nothing_to_forget_is_nothing_to_compare() -> None:
    assert compare_all([at("firm", 1), at("sum", 1)], ["firm"]) == []


scores = st.lists(st.floats(0, 1), min_size=2, max_size=2)
points = st.lists(st.tuples(st.floats(0.1, 5), scores, st.floats(0, 1)), min_size=1, max_size=6)


@given(target=scores, candidates=points, order=st.randoms())
def test_the_match_ignores_order_and_what_is_kept(
    target: list[float],
    candidates: list[tuple[float, list[float], float]],
    order: object,
) -> None:
    aim = at("firm", 1, *target)
    pool = [at("sum", gamma, *forget, kept=kept) for gamma, forget, kept in candidates]
    blind = [at("sum", gamma, *forget, kept=None) for gamma, forget, _ in candidates]
    order.shuffle(blind)  # type: ignore[attr-defined]
    chosen, other = match(aim, pool), match(aim, blind)
    largest = min(max(abs(s.forget[k] - aim.forget[k]) for k in "ab") for s in pool)
    assert max(abs(chosen.forget[k] - aim.forget[k]) for k in "ab") <= largest + 1e-9
    assert chosen.gamma == other.gamma

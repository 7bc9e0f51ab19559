from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.data.partition import PARTITIONERS, drawn_order
from fedunlearn.data.partition.dirichlet import Dirichlet
from fedunlearn.data.sources import build_partitioner
from fedunlearn.errors import DataError, InputError

KEYS = [f"author {place // 3}" for place in range(36)]
DEALT: dict[str, dict[str, Any]] = {
    "shards": {},
    "key": {"column": "author"},
    "dirichlet": {"column": "author", "alpha": 1.0},
}


def parts(keys: list[str], options: Mapping[str, Any], count: int) -> list[list[int]]:
    return [
        build_partitioner({**options, "parts": count, "part": part}).select(keys, source="mine")
        for part in range(count)
    ]


@pytest.mark.parametrize("name", sorted(DEALT))
@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_record_goes_to_exactly_one_client(name: str, count: int) -> None:
    dealt = parts(KEYS, {"by": name, **DEALT[name]}, count)
    assert sorted(place for part in dealt for place in part) == list(range(len(KEYS)))
    assert all(part == sorted(part) and part for part in dealt)


@pytest.mark.parametrize("name", sorted(DEALT))
def test_the_seed_decides_and_nothing_else(name: str) -> None:
    options = {"by": name, **DEALT[name]}
    first = parts(KEYS, options, 3)
    assert parts(KEYS, options, 3) == first
    assert any(parts(KEYS, {**options, "seed": seed}, 3) != first for seed in (1, 2))


def test_the_draw_is_the_same_on_every_machine() -> None:
    """Nodes deal out the same parts without talking to each other: known values."""
    assert drawn_order(6, "sample", seed=0) == DRAWN
    assert parts(KEYS[:9], {"by": "shards"}, 3) == SHARDS
    label_skew = {"by": "dirichlet", "column": "author", "alpha": 1.0}
    assert parts(KEYS[:18], label_skew, 2) == SKEWED


DRAWN = [1, 5, 3, 0, 4, 2]
SHARDS = [[1, 3, 6], [0, 4, 8], [2, 5, 7]]
SKEWED = [[1, 2, 3, 6, 7, 9, 11], [0, 4, 5, 8, 10, 12, 13, 14, 15, 16, 17]]


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from(["drawn", "given"]))
@settings(deadline=None)
def test_shards_differ_by_one_record_at_most(count: int, wanted: int, order: str) -> None:
    options = {"by": "shards", "order": order}
    if wanted > count:
        with pytest.raises(DataError, match=rf"mine: part .* of {wanted} would get none of the"):
            parts([""] * count, options, wanted)
        return
    sizes = [len(part) for part in parts([""] * count, options, wanted)]
    assert max(sizes) - min(sizes) <= 1


def test_shards_in_the_order_given_are_blocks() -> None:
    assert parts([""] * 5, {"by": "shards", "order": "given"}, 2) == [[0, 1, 2], [3, 4]]


def test_an_author_stays_whole() -> None:
    dealt = parts(KEYS, {"by": "key", "column": "author"}, 5)
    held = [{KEYS[place] for place in part} for part in dealt]
    assert sum(map(len, held)) == len(set(KEYS))
    sizes = [len(part) for part in dealt]
    assert max(sizes) - min(sizes) <= 3


def test_more_parts_than_authors() -> None:
    with pytest.raises(DataError, match=r"'author' has 2 values for 3 parts; part 2 would get no"):
        parts(["a", "b", "a"], {"by": "key", "column": "author"}, 3)


def test_alpha_says_how_one_sided_clients_are() -> None:
    """The share of a label that its largest holder has: 1 for small alpha, 1/parts for large."""
    keys = [f"label {place % 20}" for place in range(4000)]

    def largest(alpha: float) -> float:
        dealt = Dirichlet(column="label", alpha=alpha, parts=4, part=0).assign(keys)
        held = Counter(zip(keys, dealt, strict=True))
        return sum(max(held[key, part] for part in range(4)) for key in set(keys)) / len(keys)

    assert largest(1e-3) > 0.97
    assert largest(1e4) < 0.27
    assert largest(1e-3) > largest(1.0) > largest(1e4)


def test_shares_too_small_for_a_number_still_deal_every_record_out() -> None:
    dealt = Dirichlet(column="label", alpha=1e-300, parts=3, part=0).assign(["a"] * 9 + ["b"] * 9)
    assert len(set(dealt[:9])) == len(set(dealt[9:])) == 1


def test_a_client_that_label_skew_leaves_with_nothing() -> None:
    options = {"by": "dirichlet", "column": "l", "alpha": 1e-3, "parts": 5, "part": 0}
    says = (
        r"mine: part .* of 5 would get none of the 30 records at alpha=0.001, seed=0: raise alpha"
    )
    with pytest.raises(DataError, match=says):
        build_partitioner(options).select(["a"] * 30, source="mine")


def test_given_per_client() -> None:
    keys = ["north", "south", "north"]
    chosen = build_partitioner({"by": "given", "column": "site", "part": "north"})
    assert chosen.select(keys, source="mine") == [0, 2]
    stranger = build_partitioner({"by": "given", "column": "site", "part": "east"})
    with pytest.raises(DataError, match=r"never says 'east'; it says 'north', 'south'"):
        stranger.select(keys, source="mine")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "`by` is required; known: dirichlet, given, key, shards"),
        ({"by": "shard"}, "unknown partitioner 'shard'; did you mean 'shards'?"),
        ({"by": "shards", "parts": 2, "part": 2}, "part must be in 0..1, got 2"),
        ({"by": "shards", "parts": 0, "part": 0}, "parts must be >= 1, got 0"),
        ({"by": "shards", "parts": 2, "prt": 1}, "has no option 'prt'; did you mean 'part'?"),
        ({"by": "key", "parts": 2, "part": 1}, "column"),
        ({"by": "dirichlet", "column": "x", "alpha": 0, "parts": 2, "part": 1}, "alpha must be a"),
    ],
    ids=str,
)
def test_a_bad_setting_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        build_partitioner(options)
    assert says in str(caught.value)


def test_all_are_tried_here() -> None:
    assert {*DEALT, "given"} == set(PARTITIONERS)

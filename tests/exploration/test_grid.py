import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedunlearn.aggregation import MergeSettings, PerClientEpsilon, RelativeEpsilon
from fedunlearn.errors import InputError
from fedunlearn.exploration import (
    Point,
    parse_domains,
    parse_epsilons,
    parse_methods,
    parse_numbers,
    plan,
)
from fedunlearn.merging import MERGE_METHODS


def test_a_range_gives_the_numbers_one_would_type() -> None:
    found = parse_numbers("gamma", "0.1:2.5:0.1")
    assert found == [float(f"{tenths / 10:.1f}") for tenths in range(1, 26)]
    assert 0.3 in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", [1.0]),
        ("2, 1,1.0", [1.0, 2.0]),
        ("0.1:1:0.4", [0.1, 0.5, 0.9]),
        ("1:1:5", [1.0]),
        ("0.5:1.5:0.5,1,4", [0.5, 1.0, 1.5, 4.0]),
        ("1e-5", [1e-5]),
    ],
)
def test_numbers_and_ranges(text: str, expected: list[float]) -> None:
    assert parse_numbers("gamma", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "'' is not a number"),
        ("1,", "'' is not a number"),
        ("x", "'x' is not a number"),
        ("0.1:2.5", "start:stop:step"),
        ("1:2:3:4", "start:stop:step"),
        ("2:1:0.1", "stop is below the start"),
        ("1:2:0", "finite number > 0, got 0"),
        ("1:2:-0.1", "finite number > 0, got -0.1"),
        ("nan", "finite number > 0"),
        ("1:inf:1", "finite number > 0"),
        ("1e999", "finite number > 0"),
        ("0.001:100:0.001", "stands for 100000 numbers"),
    ],
)
def test_bad_numbers_are_named(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected.replace("'", ".")) as fault:
        parse_numbers("gamma", text)
    assert str(fault.value).startswith("gamma ")


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 40))
def test_a_range_is_evenly_spaced_and_within(start: int, width: int, step: int) -> None:
    text = f"{start / 100}:{(start + width) / 100}:{step / 100}"
    found = parse_numbers("gamma", text)
    assert found == [place / 100 for place in range(start, start + width + 1, step)]


def test_budgets() -> None:
    assert parse_epsilons("inf,4.1e-5, relative:0.3,inf") == [
        math.inf,
        4.1e-5,
        RelativeEpsilon(relative=0.3),
    ]
    alone = PerClientEpsilon(per_client={"a": 1e-4, "b": math.inf})
    assert parse_epsilons("a=1e-4,b=inf") == [alone]
    assert parse_epsilons("inf;a=1e-4,b=inf") == [math.inf, alone]
    with pytest.raises(InputError, match="epsilon '0'"):
        parse_epsilons("inf,0")


def test_methods_have_every_option_written_out() -> None:
    found = parse_methods("avg,ties:density=0.3:clients=all,ties,ties:density=0.5")
    default = asdict(MERGE_METHODS.build("ties", {}))
    assert default["density"] == 0.5
    assert found == [
        ("avg", {}),
        ("ties", default | {"density": 0.3, "clients": "all"}),
        ("ties", default),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("frim", "did you mean 'firm'"),
        ("ties:densty=1", "did you mean 'density'"),
        ("ties:density=x", "density"),
        ("ties:density", "expected name:option=value"),
        ("ties:density=2", "density must be in"),
    ],
)
def test_bad_methods_are_named(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        parse_methods(text)


def test_domains_join_in_the_order_given() -> None:
    assert parse_domains("law,bio", ["bio", "law"]) == [("law",), ("bio", "law")]
    assert parse_domains("all", ["law", "bio"]) == [("bio",), ("bio", "law")]
    with pytest.raises(InputError, match="did you mean 'bio'"):
        parse_domains("boi", ["bio", "law"])
    with pytest.raises(InputError, match="comes twice"):
        parse_domains("bio,bio", ["bio", "law"])


def test_the_plan_puts_gammas_innermost() -> None:
    points = plan(
        parse_methods("avg,firm"),
        gammas=[2.0, 1.0],
        epsilons=[math.inf, 1e-4],
        alphas=[0.1, 0.2],
        subsets=[("bio",)],
    )
    assert len(points) == 14  # avg without a budget does not depend on alpha
    assert [(p.variant, p.merge.gamma) for p in points[:5]] == [
        ("avg", 1.0),
        ("avg", 2.0),
        ("avg eps=0.0001", 1.0),
        ("avg eps=0.0001", 2.0),
        ("firm", 1.0),
    ]
    assert points[8].variant == "avg alpha=0.2 eps=0.0001"
    with pytest.raises(InputError, match="alpha must be in"):
        plan([("avg", {})], gammas=[1], epsilons=[math.inf], alphas=[2], subsets=[("bio",)])


def test_a_variant_names_what_differs_from_the_defaults() -> None:
    ((name, options),) = parse_methods("ties:density=0.3")
    merge = MergeSettings(
        method=name,
        options=options,
        alpha=0.2,
        epsilon=PerClientEpsilon(per_client={"a": 1e-4}),
        solver="bisection",
    )
    point = Point(merge=merge, domains=("bio",))
    assert point.variant == "ties:density=0.3 alpha=0.2 bisection eps=a=0.0001"
    plain = Point(merge=MergeSettings(epsilon=RelativeEpsilon(relative=0.3)), domains=())
    assert plain.variant == "firm eps=relative:0.3"


def test_every_point_has_a_file_of_its_own() -> None:
    points = plan(
        parse_methods("avg,firm,ties,ties:density=0.3"),
        gammas=[1.0, 1.0000001, 2.0],
        epsilons=[math.inf, 1e-4, RelativeEpsilon(relative=0.3)],
        alphas=[0.1, 0.2],
        subsets=[("bio",), ("bio", "law"), ("law",)],
    )
    names = {point.file_name for point in points}
    assert len(names) == len(points) > 100
    assert all(len(name) < 150 and name.isascii() and "/" not in name for name in names)

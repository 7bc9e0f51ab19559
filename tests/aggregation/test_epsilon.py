import math

import pytest
from pydantic import TypeAdapter, ValidationError

from fedunlearn.aggregation import (
    Epsilon,
    MergeSettings,
    PerClientEpsilon,
    RelativeEpsilon,
    parse_epsilon,
    resolve_epsilon,
)
from fedunlearn.errors import InputError


@pytest.mark.parametrize(
    ("text", "epsilon"),
    [
        ("inf", math.inf),
        ("4.1e-5", 4.1e-5),
        ("1e-5", 1e-5),
        ("1.0e-5", 1e-5),
        ("relative:0.3", RelativeEpsilon(relative=0.3)),
        ("a=1e-4, b=inf", PerClientEpsilon(per_client={"a": 1e-4, "b": math.inf})),
    ],
)
def test_command_line(text: str, epsilon: Epsilon) -> None:
    assert parse_epsilon(text) == epsilon


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "0",
        "-1",
        "nan",
        "relative:",
        "relative:0",
        "relative:inf",
        "a=",
        "a=-1",
        "a=1,a=2",
    ],
)
def test_bad_command_line(text: str) -> None:
    with pytest.raises(InputError, match="expected inf, a number"):
        parse_epsilon(text)


@pytest.mark.parametrize(
    ("value", "epsilon"),
    [
        ("inf", math.inf),
        (math.inf, math.inf),
        (1, 1.0),
        (1e-5, 1e-5),
        ("1e-5", 1e-5),
        ({"relative": 0.3}, RelativeEpsilon(relative=0.3)),
        ({"per_client": {"a": "inf", "b": "1e-5"}}, None),
    ],
)
def test_config_values(value: object, epsilon: Epsilon | None) -> None:
    expected = epsilon or PerClientEpsilon(per_client={"a": math.inf, "b": 1e-5})
    typed = TypeAdapter(MergeSettings).validate_python({"epsilon": value})
    assert typed.epsilon == expected
    dumped = TypeAdapter(MergeSettings).dump_python(typed, mode="json")
    assert TypeAdapter(MergeSettings).validate_python(dumped) == typed


@pytest.mark.parametrize(
    "value", [0, -1, math.nan, "soon", {"relative": 0}, {"relativ": 1}, {"per_client": {"a": 0}}]
)
def test_bad_config_values(value: object) -> None:
    with pytest.raises(ValidationError, match="epsilon"):
        TypeAdapter(MergeSettings).validate_python({"epsilon": value})


def no_pass() -> float:
    pytest.fail("must not compute the damage")


def test_absolute_and_per_client_need_no_pass() -> None:
    assert resolve_epsilon(0.5, ["a", "b"], mean_damage=no_pass) == {"a": 0.5, "b": 0.5}
    budgets = PerClientEpsilon(per_client={"b": 2.0, "a": 1.0})
    assert resolve_epsilon(budgets, ["a", "b"], mean_damage=no_pass) == {"a": 1.0, "b": 2.0}


def test_relative() -> None:
    relative = RelativeEpsilon(relative=0.25)
    assert resolve_epsilon(relative, ["a"], mean_damage=lambda: 8.0) == {"a": 2.0}
    assert resolve_epsilon(relative, ["a"], mean_damage=lambda: 0.0) == {"a": math.inf}
    assert resolve_epsilon(relative, [], mean_damage=no_pass) == {}


def test_per_client_must_fit_the_clients() -> None:
    budgets = PerClientEpsilon(per_client={"keep-0": 1.0, "kep-1": 1.0})
    with pytest.raises(InputError, match="no retain client 'kep-1'; did you mean 'keep-1'"):
        resolve_epsilon(budgets, ["keep-0", "keep-1"], mean_damage=no_pass)
    with pytest.raises(InputError, match="retain client 'keep-1' has no budget"):
        resolve_epsilon(
            PerClientEpsilon(per_client={"keep-0": 1.0}),
            ["keep-0", "keep-1"],
            mean_damage=no_pass,
        )

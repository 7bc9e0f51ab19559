import math
from typing import Any

import pytest

from fedunlearn.aggregation import MergeSettings
from fedunlearn.errors import InputError
from fedunlearn.merging import MERGE_METHODS, Ties


def test_options_reach_the_method_and_are_converted() -> None:
    assert MERGE_METHODS.build("ties", {"density": "0.25"}) == Ties(density=0.25)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("frim", {}, "unknown merge method 'frim'; did you mean 'firm'"),
        ("ties", {"densty": 0.5}, "'ties' has no option 'densty'; did you mean 'density'"),
        ("ties", {"density": 2}, r"'ties'.*density must be in \(0, 1\]"),
        ("ties", {"density": "half"}, "'ties': density .*number"),
        ("firm", {"density": 0.5}, "'firm' has no option 'density'"),
    ],
)
def test_bad_choices(name: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        MERGE_METHODS.build(name, options)


@pytest.mark.parametrize(
    "values",
    [
        {"gamma": -1.0},
        {"gamma": math.inf},
        {"gamma": math.nan},
        {"alpha": 0.0},
        {"alpha": 1.1},
        {"alpha": math.nan},
        {"eps0": 0.0},
        {"eps0": math.inf},
        {"epsilon": 0.0},
    ],
)
def test_values_out_of_range_name_the_key(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(values))} must be"):
        MergeSettings(**values)  # type: ignore[arg-type]

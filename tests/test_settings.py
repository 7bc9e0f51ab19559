from dataclasses import FrozenInstanceError

import pytest
from pydantic import TypeAdapter, ValidationError

from fedunlearn.settings import settings


@settings
class Brew:
    strength: float
    sugar: int = 0

    def __post_init__(self) -> None:
        if self.strength < 0:
            raise ValueError("strength must be >= 0")


def test_frozen_and_keyword_only() -> None:
    brew = Brew(strength=1.0)
    with pytest.raises(FrozenInstanceError):
        brew.sugar = 1  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional"):
        Brew(1.0)  # type: ignore[misc]
    assert brew == Brew(strength=1.0, sugar=0)


def test_is_its_own_schema() -> None:
    read = TypeAdapter(Brew).validate_python
    assert read({"strength": "1e-5"}) == Brew(strength=1e-5)
    with pytest.raises(ValidationError, match="strenght"):
        read({"strength": 1.0, "strenght": 2.0})
    with pytest.raises(ValidationError, match="must be >= 0"):
        read({"strength": -1.0})

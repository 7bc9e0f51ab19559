import pytest

from fedunlearn.errors import InputError
from fedunlearn.registry import Registry, nearest
from fedunlearn.settings import settings


class Animal:
    pass


@pytest.fixture
def animals() -> Registry[Animal]:
    known = Registry[Animal]("animal")
    for name in ("zebra", "ant", "camel"):
        known.register(name)(type(name, (Animal,), {}))
    return known


def test_finds_what_was_registered(animals: Registry[Animal]) -> None:
    assert animals["ant"].__name__ == "ant"
    assert "ant" in animals
    assert "bee" not in animals
    assert list(animals) == ["ant", "camel", "zebra"]


def test_the_decorator_returns_the_class(animals: Registry[Animal]) -> None:
    class Bee(Animal):
        pass

    assert animals.register("bee")(Bee) is Bee
    assert animals["bee"] is Bee


def test_a_name_is_taken_once(animals: Registry[Animal]) -> None:
    with pytest.raises(ValueError, match="animal 'ant' is already registered"):
        animals.register("ant")(Animal)


def test_an_unknown_name_suggests_the_nearest(animals: Registry[Animal]) -> None:
    with pytest.raises(InputError, match="unknown animal 'zerba'; did you mean 'zebra'"):
        animals["zerba"]


def test_a_far_off_name_lists_what_is_known(animals: Registry[Animal]) -> None:
    with pytest.raises(InputError, match="known: ant, camel, zebra"):
        animals["xyz"]


def test_an_entry_is_built_with_its_options_converted() -> None:
    known = Registry[object]("animal")

    @known.register("dog")
    @settings
    class Dog:
        legs: int = 4

        def __post_init__(self) -> None:
            if self.legs < 0:
                raise ValueError(f"legs must be >= 0, got {self.legs}")

    known.register("cat")(type("Cat", (), {}))
    assert known.build("dog", {}) == Dog()
    assert known.build("dog", {"legs": "3"}) == Dog(legs=3)
    for name, options, text in (
        ("dgo", {}, "unknown animal 'dgo'; did you mean 'dog'"),
        ("dog", {"lags": 3}, "animal 'dog' has no option 'lags'; did you mean 'legs'"),
        ("dog", {"legs": "x"}, "animal 'dog': legs .*integer"),
        ("dog", {"legs": -1}, "animal 'dog': .*legs must be >= 0, got -1"),
        ("cat", {"legs": 4}, "animal 'cat' has no option 'legs'; known: none"),
    ):
        with pytest.raises(InputError, match=text):
            known.build(name, options)  # type: ignore[arg-type]


def test_nothing_known() -> None:
    assert nearest("x", []) == "; known: none"

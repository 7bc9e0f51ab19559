import pytest

from fedunlearn.errors import InputError
from fedunlearn.registry import Registry, nearest


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


def test_nothing_known() -> None:
    assert nearest("x", []) == "; known: none"

"""Turns what pydantic finds into one line a fault: key, expected, got, nearest name."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from fedunlearn.registry import nearest

Location = tuple[int | str, ...]


def describe(fault: ValidationError, schema: type, tree: object, *, at: str = "") -> list[str]:
    """List the faults of a failed validation, in the order of their keys.

    Args:
        fault: from a ``TypeAdapter(schema).validate_python(tree)``.
        schema: the settings class.
        tree: what was validated, plain containers.
        at: dotted key of ``tree`` in the whole config.
    """
    errors = _best_branches(fault.errors(include_url=False), tree)
    return list(dict.fromkeys(_line(error, location, schema, at=at) for error, location in errors))


def _line(error: Mapping[str, Any], location: Location, schema: type, *, at: str) -> str:
    kind, key = error["type"], dotted(location, at=at) or "config"
    if kind == "unexpected_keyword_argument":
        return f"{key}: unknown key{nearest(str(location[-1]), [*_fields(schema, location[:-1])])}"
    if kind.startswith("missing"):
        return f"{key}: required, but not given"
    if kind == "value_error":
        return f"{key}: {error['ctx']['error']}"
    expected = error["msg"].removeprefix("Input should be ")
    if kind in ("dataclass_type", "dict_type"):
        expected = "keys and values"
    return f"{key}: expected {expected}, got {error['input']!r}{_literal_hint(error)}"


def dotted(location: Location, *, at: str = "") -> str:
    """Write a location as the key one would type: ``clients.0.role``."""
    return ".".join([*([at] if at else []), *map(str, location)])


def _literal_hint(error: Mapping[str, Any]) -> str:
    """Say which of a fixed set of words comes closest to the one given."""
    if error["type"] != "literal_error" or not isinstance(error["input"], str):
        return ""
    words = str(error["ctx"]["expected"]).replace(" or ", ", ").split(", ")
    hint = nearest(error["input"], [word.strip("'") for word in words])
    return hint if "did you mean" in hint else ""


def _best_branches(
    errors: Sequence[Mapping[str, Any]], tree: object
) -> list[tuple[Mapping[str, Any], Location]]:
    """Of a value that fits no branch of a union, keep the faults of the branch it fits best."""
    placed = [(error, *_in_tree(error["loc"], tree, error["type"])) for error in errors]
    costs: dict[Location, Counter[str]] = {}
    for error, _, (place, branch) in placed:
        costs.setdefault(place, Counter())[branch] += _misfit(error["type"])
    best = {place: min(branches, key=branches.__getitem__) for place, branches in costs.items()}
    return [
        (error, location) for error, location, (place, branch) in placed if best[place] == branch
    ]


def _misfit(kind: str) -> int:
    """Weigh a fault: a wrong type says more against a branch than a wrong key or value."""
    if kind.endswith("_type"):
        return 10
    return 2 if kind.startswith(("missing", "unexpected")) else 1


def _in_tree(location: Location, tree: object, kind: str) -> tuple[Location, tuple[Location, str]]:
    """Drop the parts of a location that name a branch of a union and no key.

    The last part stays when it is a key that is missing from the tree.

    Returns:
        The location without branches; and where the last union stood, with the branch's name
        (the whole location and an empty name where there is none).
    """
    kept: list[int | str] = []
    union: tuple[Location, str] | None = None
    last = len(location) - 1
    for place, part in enumerate(location):
        if _holds(tree, part):
            tree = tree[part]  # type: ignore[index]
        elif not (place == last and kind.startswith("missing")):
            union = tuple(kept), str(part)
            continue
        kept.append(part)
    return tuple(kept), union or (tuple(kept), "")


def _holds(tree: object, part: int | str) -> bool:
    if isinstance(tree, Mapping):
        return part in tree
    return isinstance(tree, list | tuple) and isinstance(part, int) and part < len(tree)


def _fields(schema: object, location: Location) -> Iterator[str]:
    """Names of the keys that may stand at a location."""
    for part in location:
        schema = _step(schema, part)
    for candidate in _plain_types(schema):
        if is_dataclass(candidate):
            yield from (field.name for field in fields(candidate))


def _step(schema: object, part: int | str) -> object:
    for candidate in _plain_types(schema):
        if is_dataclass(candidate) and isinstance(candidate, type):
            return get_type_hints(candidate).get(str(part))
        arguments = get_args(candidate)
        if get_origin(candidate) is dict:
            return arguments[1]
        if get_origin(candidate) in (tuple, list):
            return arguments[0]
    return None


def _plain_types(schema: object) -> tuple[object, ...]:
    """Return the members of a union other than None, or the type itself."""
    if get_origin(schema) in (Union, UnionType):
        return tuple(one for one in get_args(schema) if one is not NoneType)
    return (schema,)

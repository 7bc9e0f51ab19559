"""Checks the settings of registry entries: objectives and merge methods chosen by name."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedunlearn.config.faults import describe, dotted
from fedunlearn.errors import InputError
from fedunlearn.merging import MERGE_METHODS
from fedunlearn.objectives import OBJECTIVES
from fedunlearn.registry import Registry
from fedunlearn.roles import ROLES, Role

T = TypeVar("T")


def normalise_entries(tree: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Give hyperparameters of objectives and merge methods their declared types.

    Args:
        tree: the whole config, plain containers; left as it is.

    Returns:
        The tree with converted hyperparameters, and the faults found.
    """
    converted, found = _with_objectives(tree, "")
    faults = [*_non_finite(tree, ()), *found]
    if isinstance(arms := tree.get("arms"), Mapping):
        converted["arms"] = dict(arms)
        for name, arm in arms.items():
            if isinstance(arm, Mapping):
                converted["arms"][name], found = _with_objectives(arm, f"arms.{name}.")
                faults += found
    if isinstance(merges := tree.get("merges"), Mapping):
        converted["merges"] = dict(merges)
        for name, merge in merges.items():
            if isinstance(merge, Mapping):
                options, found = _merge_options(merge, f"merges.{name}")
                converted["merges"][name] = {**merge, **options}
                faults += found
    return converted, faults


def _with_objectives(tree: Mapping[str, Any], at: str) -> tuple[dict[str, Any], list[str]]:
    """Type the objectives of both roles; ``at`` begins the keys of the tree."""
    converted, faults = dict(tree), list[str]()
    for role in ROLES:
        section = tree.get(role)
        if isinstance(section, Mapping) and isinstance(section.get("objective"), Mapping):
            key = f"{at}{role}.objective"
            objective, found = _objective(section["objective"], role, at=key)
            converted[role] = {**section, "objective": objective}
            faults += found
    return converted, faults


def _objective(
    given: Mapping[str, Any], role: Role, *, at: str
) -> tuple[dict[str, Any], list[str]]:
    options = {key: value for key, value in given.items() if key != "name"}
    if not isinstance(name := given.get("name"), str):
        return dict(given), [f"{at}.name: required; one of {', '.join(OBJECTIVES)}"]
    options, faults = entry_options(OBJECTIVES, name, options, at=at, name_key="name")
    if name in OBJECTIVES and OBJECTIVES[name].role != role:
        faults.append(f"{at}.name: {name!r} is an objective for {OBJECTIVES[name].role} clients")
    return {"name": name, **options}, faults


def _merge_options(given: Mapping[str, Any], at: str) -> tuple[dict[str, Any], list[str]]:
    name, options = given.get("method", "firm"), given.get("options", {})
    if not isinstance(name, str) or not isinstance(options, Mapping):
        return {}, []  # the schema says what is wrong
    options, faults = entry_options(
        MERGE_METHODS, name, options, at=f"{at}.options", name_key=f"{at}.method"
    )
    return {"options": options}, faults


def entry_options(
    registry: Registry[T], name: str, options: Mapping[str, Any], *, at: str, name_key: str
) -> tuple[dict[str, Any], list[str]]:
    """Check the hyperparameters of one registry entry and convert them.

    Args:
        registry: where the entry is.
        name: the entry.
        options: hyperparameters as given.
        at: dotted key of the options.
        name_key: dotted key of the name; relative to ``at`` when it has no dot.

    Returns:
        The options, converted where they could be, and the faults.
    """
    try:
        entry = registry[name]
    except InputError as fault:
        return dict(options), [
            f"{name_key if '.' in name_key else dotted((name_key,), at=at)}: {fault}"
        ]
    if not is_dataclass(entry):
        return dict(options), [f"{dotted((key,), at=at)}: unknown key" for key in options]
    try:
        typed = TypeAdapter(entry).validate_python(dict(options))
    except ValidationError as fault:
        return dict(options), describe(fault, entry, options, at=at)
    return {key: getattr(typed, key) for key in options}, []


def _non_finite(tree: object, location: tuple[int | str, ...]) -> Iterator[str]:
    """Find NaN anywhere, and infinity anywhere but in an epsilon."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _non_finite(value, (*location, key))
    elif isinstance(tree, list | tuple):
        for place, value in enumerate(tree):
            yield from _non_finite(value, (*location, place))
    elif isinstance(tree, float) and (math.isnan(tree) or _misplaced_infinity(tree, location)):
        yield f"{dotted(location)}: expected a finite number, got {tree}"


def _misplaced_infinity(value: float, location: tuple[int | str, ...]) -> bool:
    return math.isinf(value) and "epsilon" not in location

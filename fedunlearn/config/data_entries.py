"""Checks the data sources that a config names: their settings, and those of their partitioners."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedunlearn.config.entries import entry_options
from fedunlearn.data.partition import PARTITIONERS, Partitioner
from fedunlearn.data.reading import build_source
from fedunlearn.data.sources import SOURCES, Source, build_partitioner
from fedunlearn.errors import InputError


def normalise_sources(tree: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Give the settings of data sources their declared types.

    Args:
        tree: the whole config, plain containers; left as it is.

    Returns:
        The tree with converted settings, and the faults found.
    """
    converted, faults = dict(tree), list[str]()
    if isinstance(clients := tree.get("clients"), list):
        converted["clients"], found = _rows(clients, "clients")
        faults += found
    if isinstance(lesson := tree.get("teach"), Mapping):
        (converted["teach"],), found = _rows([lesson], "teach")
        faults += [fault.replace("teach.0.", "teach.", 1) for fault in found]
    evaluation = tree.get("evaluation")
    if isinstance(evaluation, Mapping) and isinstance(evaluation.get("sets"), list):
        sets, found = _rows(evaluation["sets"], "evaluation.sets")
        converted["evaluation"] = {**evaluation, "sets": sets}
        faults += found
    return converted, faults


def _rows(rows: list[Any], at: str) -> tuple[list[Any], list[str]]:
    converted, faults = [], list[str]()
    for place, row in enumerate(rows):
        if isinstance(row, Mapping):
            row = dict(row)
            for key in ("data", "choices", "retain_data", "holdout"):
                if isinstance(row.get(key), Mapping):
                    row[key], found = _source(row[key], f"{at}.{place}.{key}")
                    faults += found
        converted.append(row)
    return converted, faults


def _source(given: Mapping[str, Any], at: str) -> tuple[dict[str, Any], list[str]]:
    options = {key: value for key, value in given.items() if key != "source"}
    if not isinstance(name := given.get("source"), str):
        return dict(given), [f"{at}.source: required; one of {', '.join(SOURCES)}"]
    options, faults = entry_options(SOURCES, name, options, at=at, name_key=f"{at}.source")
    if isinstance(partition := options.get("partition"), Mapping):
        options["partition"], found = _partition(partition, f"{at}.partition")
        faults += found
    return {"source": name, **options}, faults


def _partition(given: Mapping[str, Any], at: str) -> tuple[dict[str, Any], list[str]]:
    options = {key: value for key, value in given.items() if key != "by"}
    if not isinstance(name := given.get("by"), str):
        return dict(given), [f"{at}.by: required; one of {', '.join(PARTITIONERS)}"]
    options, faults = entry_options(PARTITIONERS, name, options, at=at, name_key=f"{at}.by")
    return {"by": name, **options}, faults


def partition_faults(clients: Mapping[int, tuple[str, object]]) -> Iterator[str]:
    """Find clients whose parts of one source overlap: every record is for one client only.

    Args:
        clients: place in the config to the client's id and data.
    """
    dealt: dict[Source, tuple[str, Partitioner]] = {}
    held: dict[tuple[Source, object], str] = {}
    for place, (client, data) in clients.items():
        if (parted := _parted(data)) is None:
            continue
        whole, chosen = parted
        first, other = dealt.setdefault(whole, (client, chosen))
        at = f"clients.{place}.data.partition"
        if _dealing(chosen) != _dealing(other):
            yield f"{at}: differs from that of {first!r} in more than its part; parts may overlap"
        elif (whole, chosen.wanted) in held:
            holder = held[whole, chosen.wanted]
            yield f"{at}.part: client {holder!r} already holds part {chosen.wanted} of this source"
        held.setdefault((whole, chosen.wanted), client)


def _dealing(chosen: Partitioner) -> tuple[object, ...]:
    """What clients that share a source must have in common: all but the part."""
    return type(chosen), *(value for key, value in vars(chosen).items() if key != "part")


def _parted(data: object) -> tuple[Source, Partitioner] | None:
    """The undivided source and its partitioner; ``None`` without one, or with a faulty one."""
    if not isinstance(data, Mapping) or not data.get("partition"):
        return None
    try:
        source = build_source(data)
        return replace(source, partition=None), build_partitioner(source.partition or {})
    except InputError:
        return None

"""Checks the data sources that a config names: their settings, and those of their partitioners."""

from collections.abc import Iterator, Mapping
from typing import Any

from fedunlearn.config.entries import entry_options
from fedunlearn.data.partition import PARTITIONERS
from fedunlearn.data.sources import SOURCES


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
            for key in ("data", "choices"):
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


def parts_held(clients: Mapping[int, tuple[str, object]]) -> Iterator[str]:
    """Find parts of one partition that two clients hold: every record is for one client only.

    Args:
        clients: place in the config to the client's id and data.
    """
    held: dict[str, str] = {}
    for place, (client, data) in clients.items():
        if not isinstance(data, Mapping) or not data.get("partition"):
            continue
        whole = repr(sorted(data.items(), key=lambda pair: str(pair[0])))
        if whole in held:
            part = data["partition"].get("part")
            at = f"clients.{place}.data.partition.part"
            yield f"{at}: client {held[whole]!r} already holds part {part} of this source"
        held.setdefault(whole, client)

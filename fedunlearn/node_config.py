"""Who a node is: which clients it answers for, by its own configuration and nobody else's.

A deployed node says it in one of two ways, as keys of the SuperNode's ``--node-config``:

* ``client-id``, ``role``, ``domain`` and ``data``, where its objective reads them ``retain-data``
  and ``refusals``: one client;
* ``node-file``, the path of a TOML file with a ``[[clients]]`` table for each: any number.

A simulated node has only a number, which picks an entry of the run's ``clients``.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedunlearn.data.reading import DataSpec, build_source, local_path
from fedunlearn.errors import ConfigError, InputError
from fedunlearn.names import LABEL_RULE, NAME_RULE, is_label, is_name, shown
from fedunlearn.registry import nearest
from fedunlearn.roles import ROLES
from fedunlearn.training.client_settings import ClientIdentity

NodeConfig = Mapping[str, bool | float | int | str]

FILE_KEY = "node-file"
PARTITION_KEY = "partition-id"
_NEEDED = ("id", "role", "domain", "data")
_KNOWN = (*_NEEDED, "retain-data", "refusals")


def node_clients(
    node_config: NodeConfig, listed: Sequence[ClientIdentity] = ()
) -> tuple[ClientIdentity, ...]:
    """Find out which clients a node answers for, in the order in which it names them.

    Args:
        node_config: the node's own.
        listed: the run's clients, from which a simulated node picks its own.

    Raises:
        ConfigError: a key is missing or invalid, an id is there twice, or the simulation has more
            nodes than the run has clients; every fault is named.
    """
    inline = [_inline_key(key) for key in _KNOWN if _inline_key(key) in node_config]
    if FILE_KEY in node_config:
        if inline:
            raise ConfigError(
                [f"node-config: {FILE_KEY} and {inline[0]}: give one or the other, not both"]
            )
        return read_node_file(Path(str(node_config[FILE_KEY])))
    if inline or PARTITION_KEY not in node_config:
        return (_from_keys(node_config),)
    return (_simulated(int(node_config[PARTITION_KEY]), listed),)


def _inline_key(key: str) -> str:
    return "client-id" if key == "id" else key


def _simulated(partition: int, listed: Sequence[ClientIdentity]) -> ClientIdentity:
    if partition >= len(listed):
        raise ConfigError(
            [
                f"clients: the simulation has a node {partition} but the run has "
                f"{len(listed)} clients; set num-supernodes to that number"
            ]
        )
    return listed[partition]


def _from_keys(node_config: NodeConfig) -> ClientIdentity:
    given = {key: str(node_config.get(_inline_key(key), "")) for key in _KNOWN}
    faults = [
        f"node-config: {_inline_key(key)!r} is missing; start the SuperNode with --node-config "
        f'\'{_inline_key(key)}="..."\', or with {FILE_KEY}="..." for several clients'
        for key in _NEEDED
        if not given[key]
    ]
    table: dict[str, Any] = {key: value for key, value in given.items() if value}
    for key in ("data", "retain-data"):
        if table.get(key, "").lstrip().startswith("{"):
            try:
                table[key] = json.loads(table[key])
            except ValueError as fault:
                faults.append(f"node-config: {key}: {fault}")
                del table[key]
    faults += [f"node-config: {_inline_key(key)} {text}" for key, text in _value_faults(table)]
    if faults:
        raise ConfigError(faults)
    return _identity(table)


def read_node_file(path: Path) -> tuple[ClientIdentity, ...]:
    """Read the clients of a node's TOML file.

    Raises:
        ConfigError: it cannot be read, has no client, or a client lacks a key, has one too many
            or a bad one, or an id that another has; every fault is named with its client's place.
    """
    path = path.expanduser()
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise ConfigError([f"{FILE_KEY} {path} cannot be read: {fault.strerror}"]) from None
    except ValueError as fault:  # TOML or UTF-8 that is none
        raise ConfigError([f"{FILE_KEY} {path} is not TOML: {fault}"]) from None
    tables = tree.pop("clients", None)
    faults = [f"{path}: unknown key {key!r}{nearest(key, ['clients'])}" for key in tree]
    if not isinstance(tables, list) or not tables:
        raise ConfigError([*faults, f"{path}: no client; add a table [[clients]]"])
    for place, table in enumerate(tables):
        faults += [f"{path}: clients.{place}.{text}" for text in _table_faults(table)]
    faults += _duplicates(path, tables)
    if faults:
        raise ConfigError(faults)
    return tuple(_identity(table) for table in tables)


def _table_faults(table: object) -> Iterator[str]:
    if not isinstance(table, dict):
        yield f"{shown(table)}: expected a table of keys"
        return
    for key in table:
        if key not in _KNOWN:
            yield f"{key}: unknown key{nearest(key, [*_KNOWN])}"
    for key in _NEEDED:
        if not table.get(key):
            yield f"{key}: required, but not given"
    for key, text in _value_faults({k: v for k, v in table.items() if k in _KNOWN and v}):
        yield f"{key}: {text}"
    for key in ("data", "retain-data", "refusals"):
        path = local_path(table.get(key, {})) if isinstance(table.get(key), str | dict) else None
        if path and not Path(path).expanduser().is_absolute():
            yield f"{key}: {path!r} must be an absolute path: where a node starts is not fixed"


def _duplicates(path: Path, tables: Sequence[object]) -> Iterator[str]:
    ids = [str(table.get("id")) for table in tables if isinstance(table, dict) and "id" in table]
    for client_id, count in Counter(ids).items():
        if count > 1:
            yield f"{path}: id {client_id!r} is used by {count} clients; give each its own"


def _value_faults(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Say what is wrong with the values that are there, key by key."""
    for key in ("id", "role", "domain", "refusals"):
        if key in table and not isinstance(table[key], str):
            yield key, f"{shown(table[key])} must be a text"
    client_id, role, domain = (table.get(key) for key in ("id", "role", "domain"))
    if isinstance(client_id, str) and not is_name(client_id):
        yield "id", f"{shown(client_id)} must be {NAME_RULE}"
    if isinstance(domain, str) and not is_label(domain):
        yield "domain", f"{shown(domain)} must be {LABEL_RULE}"
    if isinstance(role, str) and role not in ROLES:
        yield "role", f"{shown(role)} is none of {', '.join(ROLES)}"
    for key in ("data", "retain-data"):
        if key in table and (fault := _data_fault(table[key])):
            yield key, fault


def _data_fault(spec: object) -> str | None:
    if not isinstance(spec, str | dict):
        return f"{shown(spec)} must be a path, or a source and its settings"
    try:
        build_source(spec)
    except InputError as fault:
        return f"names no source: {fault}"
    return None


def _identity(table: Mapping[str, Any]) -> ClientIdentity:
    """Make the identity of a table without faults."""
    retain_data: DataSpec | None = table.get("retain-data")
    return ClientIdentity(
        id=table["id"],
        role=next(role for role in ROLES if role == table["role"]),
        domain=table["domain"],
        data=table["data"],
        retain_data=retain_data,
        refusals=table.get("refusals"),
    )

"""What is to be deployed: under which names the server is reached, and which nodes there are."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedunlearn.errors import ConfigError
from fedunlearn.names import LABEL_RULE, NAME_RULE, is_label, is_name, shown
from fedunlearn.roles import ROLES

_FORM = "NAME:ROLE:DOMAIN, or NAME=ID:ROLE:DOMAIN,ID:ROLE:DOMAIN for a node with several clients"


@dataclass(frozen=True)
class ClientPlan:
    """One client of a node.

    Attributes:
        id: unique in the federation.
        role: ``forget`` or ``retain``.
        domain: what its data is about.
    """

    id: str
    role: str
    domain: str


@dataclass(frozen=True)
class NodePlan:
    """A SuperNode: its name, which names its files, and the clients it answers for."""

    name: str
    clients: tuple[ClientPlan, ...]


@dataclass(frozen=True)
class DeploymentPlan:
    """A SuperLink, its gate and its SuperNodes.

    Attributes:
        hosts: names and addresses under which nodes reach the server, the first being the one
            they are told.
        nodes: the SuperNodes.
        port: of the gate, to which nodes connect.
        superlink_port: of the SuperLink, on the server's loopback only.
        node_port: of the first node's own processes, on its loopback; the next has the next one,
            so that several can share a machine.
        days: how long the server's certificate is valid.
    """

    hosts: tuple[str, ...]
    nodes: tuple[NodePlan, ...]
    port: int = 8443
    superlink_port: int = 8000
    node_port: int = 9101
    days: int = 365

    def __post_init__(self) -> None:
        if faults := [*_plan_faults(self)]:
            raise ConfigError(faults)

    @property
    def address(self) -> str:
        """Where nodes connect, as ``host:port``."""
        host = f"[{self.hosts[0]}]" if ":" in self.hosts[0] else self.hosts[0]
        return f"{host}:{self.port}"

    @property
    def num_clients(self) -> int:
        """How many clients the nodes answer for."""
        return sum(len(node.clients) for node in self.nodes)


def _plan_faults(plan: DeploymentPlan) -> Iterator[str]:
    if not plan.hosts or not all(plan.hosts):
        yield "host: name at least one host or address under which nodes reach the server"
    if not plan.nodes:
        yield f"node: name at least one, as {_FORM}"
    for what, names in (
        ("node", [node.name for node in plan.nodes]),
        ("client id", [client.id for node in plan.nodes for client in node.clients]),
    ):
        for name, count in Counter(names).items():
            if not is_name(name):
                yield f"{what} {shown(name)} must be {NAME_RULE}"
            if count > 1:
                yield f"{what} {name!r} is there {count} times; give each its own"
    for node in plan.nodes:
        yield from _client_faults(node)
    for port in (plan.port, plan.superlink_port, plan.node_port):
        if not 0 < port < 65536:
            yield f"port {port} must be between 1 and 65535"


def _client_faults(node: NodePlan) -> Iterator[str]:
    for client in node.clients:
        if client.role not in ROLES:
            yield f"client {client.id!r}: role {shown(client.role)} is none of {', '.join(ROLES)}"
        if not is_label(client.domain):
            yield f"client {client.id!r}: domain {shown(client.domain)} must be {LABEL_RULE}"
    if not node.clients:
        yield f"node {node.name!r} has no client"


def parse_node(text: str) -> NodePlan:
    """Read a node as it is given on the command line.

    Example:
        >>> parse_node("clinic:forget:records").clients[0].role
        'forget'

    Raises:
        ConfigError: it is not of that form.
    """
    name, several, rest = text.partition("=")
    parts = [one.split(":", 2) for one in (rest.split(",") if several else [text])]
    if any(len(part) != 3 for part in parts):
        raise ConfigError([f"node {shown(text)}: expected {_FORM}"])
    clients = tuple(ClientPlan(*part) for part in parts)
    return NodePlan(name if several else clients[0].id, clients)


def read_nodes(path: Path) -> tuple[NodePlan, ...]:
    """Read nodes from YAML: the name of each, and the ``id``, ``role``, ``domain`` of its clients.

    Raises:
        ConfigError: it cannot be read, or is not of that form; every fault is named.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as fault:
        raise ConfigError([f"{path} cannot be read: {fault}"]) from None
    if not isinstance(tree, dict):
        raise ConfigError([f"{path}: expected the nodes' names, each with a list of its clients"])
    faults = [fault for name, them in tree.items() for fault in _entry_faults(str(name), them)]
    if faults:
        raise ConfigError([f"{path}: {fault}" for fault in faults])
    return tuple(
        NodePlan(str(name), tuple(ClientPlan(**client) for client in them))
        for name, them in tree.items()
    )


def _entry_faults(name: str, clients: Any) -> Iterator[str]:
    keys = {"id", "role", "domain"}
    if not isinstance(clients, list):
        yield f"node {name!r}: expected a list of clients, got {shown(clients)}"
        return
    for client in clients:
        if not isinstance(client, Mapping) or set(client) != keys:
            yield f"node {name!r}: expected id, role and domain, got {shown(client)}"
        elif not all(isinstance(value, str) for value in client.values()):
            yield f"node {name!r}: id, role and domain must be texts, got {shown(dict(client))}"

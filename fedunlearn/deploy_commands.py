"""What ``deploy init`` and ``deploy gate`` do; neither loads PyTorch, which takes seconds."""

import datetime
from collections.abc import Sequence
from pathlib import Path

from fedunlearn.deployment import DeploymentPlan, parse_node, read_nodes, write_deployment
from fedunlearn.deployment.gate import run_gate
from fedunlearn.deployment.link_checks import host_and_port


def init(
    folder: Path,
    hosts: Sequence[str],
    given: Sequence[str],
    nodes_file: Path | None,
    *,
    port: int,
    superlink_port: int,
    node_port: int,
    days: int,
) -> None:
    """Write a deployment, and say where its README is.

    Raises:
        InputError: the plan has faults, or the folder exists.
    """
    nodes = (*map(parse_node, given), *(read_nodes(nodes_file) if nodes_file else ()))
    plan = DeploymentPlan(
        tuple(hosts),
        nodes,
        port=port,
        superlink_port=superlink_port,
        node_port=node_port,
        days=days,
    )
    write_deployment(plan, folder, clock=lambda: datetime.datetime.now(datetime.UTC))
    print(f"{folder / 'README.md'} says what comes next")


def gate(
    listen: str, superlink: str, *, certificate: Path, key: Path, root_certificates: Path
) -> None:
    """Serve the gate.

    Raises:
        InputError: an address or a file cannot be used.
    """
    run_gate(
        listen=host_and_port(listen),
        superlink=host_and_port(superlink),
        certificate=certificate,
        key=key,
        root_certificates=root_certificates,
    )

"""The README of a deployment: what every file is for, and the exact commands in their order."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedunlearn.deployment.commands import (
    check_command,
    gate_command,
    list_command,
    register_command,
    run_command,
    superlink_command,
    supernode_command,
)
from fedunlearn.deployment.plan import DeploymentPlan, NodePlan

_LINE = 92


def guide(plan: DeploymentPlan, folder: Path) -> str:
    """Write the README of the deployment in ``folder``."""
    server = folder / "superlink"
    nodes = "\n\n".join(_node(plan, node, folder) for node in plan.nodes)
    return _TEXT.format(
        folder=folder,
        address=plan.address,
        num_clients=plan.num_clients,
        num_nodes=len(plan.nodes),
        superlink=_block(superlink_command(plan, server)),
        gate=_block(gate_command(plan, server)),
        register=_block(*(register_command(node, server) for node in plan.nodes)),
        nodes=nodes,
        run=_block(run_command(".", config="/srv/unlearn.yaml", out="/srv/runs/first")),
        list=_block(list_command()),
        home=shlex.quote(str(folder / "operator")),
    )


def _node(plan: DeploymentPlan, node: NodePlan, folder: Path) -> str:
    own = folder / "nodes" / node.name
    return f"### {node.name}\n\n" + _block(
        check_command(plan, own), supernode_command(plan, node, own)
    )


def _block(*commands: Sequence[str]) -> str:
    return "\n".join(["```bash", *map(_wrapped, commands), "```"])


def _wrapped(command: Sequence[str]) -> str:
    """Break a command over lines, before its options."""
    lines = [""]
    for word in map(shlex.quote, command):
        if word.startswith("--") and len(lines[-1]) > _LINE // 2:
            lines.append(" ")
        lines[-1] += f" {word}"
    return " \\\n".join(lines).strip()


_TEXT = """\
# A federation of {num_nodes} nodes and {num_clients} clients

Made by `fedunlearn deploy init`. The commands are those of this folder, `{folder}`; on another
machine put that machine's path in its place, or use the units and compose files.

| folder | goes to | what it holds |
|---|---|---|
| `authority` | a safe place, offline | the private CA; only needed to sign again |
| `superlink` | the server, as `/etc/fedunlearn` | its key and certificate, the nodes' public keys |
| `nodes/NAME` | that node, as `/etc/fedunlearn` | its key and `node.toml` |
| `operator` | who starts runs, on the server | `config.toml` for `flwr` |

No private key leaves its folder but by your hands. Whoever holds a node's `node.key` is that node;
a node may make its own with `ssh-keygen -t ecdsa -b 384 -N "" -f node.key` and send `node.key.pub`
only. Server and nodes have systemd units and a compose file, too.

## 1. Server

{superlink}

The SuperLink listens on loopback only: on its port, *anybody* may start runs and let nodes in, and
a run's code is executed by every node. What the network sees is the gate, which passes on the
nodes' own calls and nothing else. In a second shell:

{gate}

## 2. Let the nodes in

On the server, where the operator works:

```bash
export FLWR_HOME={home}
```

{register}

## 3. Nodes

In `node.toml` put the paths of the node's data. Then check the node, and start it.

{nodes}

## 4. Run

The run's config has `clients: []`, `federation.expected_clients: {num_clients}` and
`federation.expected_nodes: {num_nodes}`; it and the model lie under the same path on every machine.
From the project's folder, where the operator works:

{run}

{list}

`flwr run` exits with 0 in any case; the second command says `finished:completed` or
`finished:failed`. Nodes connect to `{address}`.
"""

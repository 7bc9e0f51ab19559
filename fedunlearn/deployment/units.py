"""systemd units and compose files: the same commands, kept running and kept apart."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from fedunlearn.deployment.commands import gate_command, superlink_command, supernode_command
from fedunlearn.deployment.plan import DeploymentPlan, NodePlan

INSTALLED = PurePosixPath("/etc/fedunlearn")
PROGRAMS = PurePosixPath("/opt/fedunlearn/bin")
STATE = PurePosixPath("/var/lib/fedunlearn")
RUNS = PurePosixPath("/srv/runs")
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}

_UNIT = """\
[Unit]
Description={description}
After=network-online.target{after}
Wants=network-online.target

[Service]
User=fedunlearn
WorkingDirectory={state}
Environment=PATH={programs}:/usr/bin:/bin FLWR_HOME={state}/flwr {quiet}
ExecStart={command}
Restart=on-failure
RestartSec=10
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={writable}

[Install]
WantedBy=multi-user.target
"""


def superlink_units(plan: DeploymentPlan) -> dict[str, str]:
    """The server's units by file name."""
    link = superlink_command(plan, INSTALLED)
    gate = gate_command(plan, INSTALLED)
    service = "fedunlearn-superlink.service"
    writable = f"{STATE} {INSTALLED}/state -{RUNS}"  # the minus: where it is not, nothing is wrong
    return {
        service: _unit("fedunlearn SuperLink", link, writable=writable),
        "fedunlearn-gate.service": _unit("fedunlearn gate to the SuperLink", gate, after=service),
    }


def supernode_unit(plan: DeploymentPlan, node: NodePlan) -> str:
    """A node's unit."""
    return _unit(f"fedunlearn SuperNode {node.name}", supernode_command(plan, node, INSTALLED))


def _unit(
    description: str, command: Sequence[str], *, writable: str = str(STATE), after: str = ""
) -> str:
    program, *rest = command
    shown = " ".join([str(PROGRAMS / program), *map(_quoted, rest)])
    return _UNIT.format(
        description=description,
        command=shown,
        state=STATE,
        programs=PROGRAMS,
        quiet=" ".join(f"{key}={value}" for key, value in QUIET.items()),
        writable=writable,
        after=f" {after}" if after else "",
    )


def _quoted(word: str) -> str:
    """Quote a word as systemd reads it; ``%`` would begin a specifier, ``$`` a variable."""
    safe = word.replace("%", "%%").replace("$", "$$")
    return shlex.quote(safe) if shlex.quote(safe) != safe else safe


def superlink_compose(plan: DeploymentPlan) -> str:
    """The server as two containers on one loopback, so that only the gate is seen from outside."""
    link = _service(
        superlink_command(plan, INSTALLED),
        volumes=["./:/etc/fedunlearn:ro", "./state:/etc/fedunlearn/state", f"{RUNS}:{RUNS}"],
    )
    link["ports"] = [f"{plan.port}:{plan.port}"]
    gate = _service(gate_command(plan, INSTALLED), volumes=["./:/etc/fedunlearn:ro"])
    gate["network_mode"] = "service:superlink"
    return _compose({"superlink": link, "gate": gate})


def supernode_compose(plan: DeploymentPlan, node: NodePlan) -> str:
    """A node as one container; add its data and its model to the volumes."""
    command = supernode_command(plan, node, INSTALLED)
    return _compose({"supernode": _service(command, volumes=["./:/etc/fedunlearn:ro"])})


def _service(command: Sequence[str], *, volumes: Sequence[str]) -> dict[str, object]:
    return {
        "image": "${FEDUNLEARN_IMAGE:?name an image in which fedunlearn is installed}",
        "command": [word.replace("$", "$$") for word in command],
        "environment": QUIET,
        "volumes": list(volumes),
        "restart": "on-failure",
        "security_opt": ["no-new-privileges:true"],
    }


def _compose(services: Mapping[str, object]) -> str:
    """Write a compose file; it is YAML, of which JSON is a part."""
    return json.dumps({"services": services}, indent=2) + "\n"

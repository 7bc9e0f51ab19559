"""The commands of a deployment, each once: units, compose file and README all show these."""

from pathlib import PurePath

from fedunlearn.deployment.plan import DeploymentPlan, NodePlan

CONNECTION = "fedunlearn"
"""What the operator's ``config.toml`` calls the SuperLink."""


def superlink_command(
    plan: DeploymentPlan, folder: PurePath, *, host: str = "127.0.0.1"
) -> list[str]:
    """The SuperLink: on loopback, with TLS, for registered nodes only."""
    return [
        *("flower-superlink", "--host", host, "--port", str(plan.superlink_port)),
        *("--ssl-ca-certfile", str(folder / "ca.crt")),
        *("--ssl-certfile", str(folder / "server.crt")),
        *("--ssl-keyfile", str(folder / "server.key")),
        *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
        *("--database", str(folder / "state" / "superlink.db")),
    ]


def gate_command(
    plan: DeploymentPlan, folder: PurePath, *, superlink: str = "127.0.0.1"
) -> list[str]:
    """The gate: what the network sees of the SuperLink."""
    return [
        *("fedunlearn", "deploy", "gate", "--listen", f"0.0.0.0:{plan.port}"),
        *("--superlink", f"{superlink}:{plan.superlink_port}"),
        *("--certificate", str(folder / "server.crt"), "--key", str(folder / "server.key")),
        *("--root-certificates", str(folder / "ca.crt")),
    ]


def supernode_command(plan: DeploymentPlan, node: NodePlan, folder: PurePath) -> list[str]:
    """A SuperNode that knows the server's authority and shows its own key."""
    port = plan.node_port + plan.nodes.index(node)
    return [
        *("flower-supernode", "--superlink", plan.address),
        *("--root-certificates", str(folder / "ca.crt")),
        *("--auth-supernode-private-key", str(folder / "node.key")),
        *("--port", str(port), "--node-config", f'node-file="{folder / "node.toml"}"'),
    ]


def check_command(plan: DeploymentPlan, folder: PurePath) -> list[str]:
    """The check of a node, but for the run's config."""
    return [
        *("fedunlearn", "deploy", "check", str(folder / "node.toml")),
        *("--superlink", plan.address, "--root-certificates", str(folder / "ca.crt")),
        *("--private-key", str(folder / "node.key")),
    ]


def register_command(node: NodePlan, folder: PurePath) -> list[str]:
    """The operator lets a node in."""
    key = str(folder / "keys" / f"{node.name}.pub")
    return ["flwr", "supernode", "register", key, CONNECTION, "--name", node.name]


def run_command(app: str, *, config: str, out: str) -> list[str]:
    """The operator starts a run."""
    keys = f'config="{config}" out="{out}"'
    return ["flwr", "run", app, CONNECTION, "--stream", "-c", keys]


def list_command() -> list[str]:
    """The operator asks how runs ended."""
    return ["flwr", "list", CONNECTION, "--format", "json"]

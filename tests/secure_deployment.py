"""A deployment with TLS and node keys on this machine, by the commands of its own README."""

import datetime
import re
import shlex
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from fedunlearn.deployment import DeploymentPlan, write_deployment
from fedunlearn.deployment.plan import ClientPlan, NodePlan
from fedunlearn.training.client_settings import ClientIdentity
from tests.deployment import ROOT, Processes, free_ports

UP_S = 120.0


def plan_of(
    held: Mapping[str, Sequence[ClientIdentity]], *, host: str = "127.0.0.1"
) -> DeploymentPlan:
    """A plan on free ports; nodes take theirs from the last one on."""
    port, superlink_port, node_port = free_ports(3)
    nodes = tuple(
        NodePlan(name, tuple(ClientPlan(one.id, one.role, one.domain) for one in them))
        for name, them in held.items()
    )
    return DeploymentPlan(
        (host,), nodes, port=port, superlink_port=superlink_port, node_port=node_port
    )


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def written_commands(page: str) -> list[list[str]]:
    """All commands of a page's bash blocks, word by word."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


class SecureDeployment:
    """What `fedunlearn deploy init` writes, put to use.

    Args:
        processes: starts the programs.
        plan: what is deployed.
        folder: where it is written.
    """

    def __init__(self, processes: Processes, plan: DeploymentPlan, folder: Path) -> None:
        write_deployment(plan, folder, clock=now)
        self.plan, self.folder = plan, folder
        self._processes = processes
        self._written = written_commands((folder / "README.md").read_text())
        self._operator = {"FLWR_HOME": str(folder / "operator")}

    def command(self, *words: str) -> list[str]:
        """The one command of the README that has all these words, in any place."""
        (found,) = [
            one for one in self._written if all(any(w in part for part in one) for w in words)
        ]
        return found

    def fill_in(self, held: Mapping[str, Sequence[ClientIdentity]]) -> None:
        """Put the paths of the data into the nodes' files, as their keepers do."""
        for name, clients in held.items():
            file = self.folder / "nodes" / name / "node.toml"
            text = file.read_text()
            for client in clients:
                assert isinstance(client.data, str)
                text = text.replace(f"/srv/data/{client.id}.jsonl", client.data)
            file.write_text(text)

    def start_server(self, *, answers: Callable[[], bool] | None = None) -> None:
        """Start the SuperLink and its gate, and wait until nodes can connect."""
        self._processes.start("superlink", self.command("flower-superlink"))
        self._processes.start("gate", self.command("gate", "--listen"))
        answers = answers or (lambda: self.status("/health", method="GET") == 200)
        end = time.monotonic() + UP_S
        while not answers():
            assert self._processes.alive("superlink"), "the SuperLink ended"
            assert self._processes.alive("gate"), "the gate ended"
            assert time.monotonic() < end, "the gate does not answer"
            time.sleep(0.5)

    def status(
        self,
        path: str,
        *,
        method: str = "POST",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """HTTP status of a request at the gate; 0 when nobody answers."""
        trusted = ssl.create_default_context(cafile=self.folder / "authority" / "ca.crt")
        url = f"https://127.0.0.1:{self.plan.port}{path}"
        request = urllib.request.Request(url, body, dict(headers or {}), method=method)
        try:
            with urllib.request.urlopen(request, timeout=10, context=trusted) as response:
                return int(response.status)
        except urllib.error.HTTPError as answer:
            answer.close()
            return answer.code
        except OSError:
            return 0

    def register(self, name: str) -> None:
        self._operate(f"register-{name}", self.command("register", f"{name}.pub"))

    def check(self, name: str) -> str:
        """Check a node as its keeper does; it must pass."""
        command = self.command("check", f"nodes/{name}/node.toml")
        return self._processes.run(f"check-{name}", command, limit_s=UP_S)

    def start_node(self, name: str) -> None:
        command = self.command("flower-supernode", f"nodes/{name}/node.key")
        self._processes.start(f"supernode-{name}", command)

    def run(self, config: Path, out: Path, *, limit_s: float) -> str:
        """Start a run by the README's command, with our paths in it."""
        command = self.command("run", "--stream")
        command = [one.replace("/srv/unlearn.yaml", str(config)) for one in command]
        command = [one.replace("/srv/runs/first", str(out)) for one in command]
        command[command.index(".")] = str(ROOT)
        return self._operate("flwr-run", command, limit_s=limit_s)

    def statuses(self) -> str:
        return self._operate("flwr-list", self.command("list", "--format"))

    def _operate(self, name: str, command: Sequence[str], *, limit_s: float = UP_S) -> str:
        return self._processes.run(name, command, limit_s=limit_s, variables=self._operator)


def unlisted(path: Path, tree: Mapping[str, object], *, clients: int, nodes: int) -> Path:
    """A run's config for nodes that say themselves who they are."""
    federation = {"expected_clients": clients, "expected_nodes": nodes, "deadline_s": 240.0}
    path.write_text(yaml.safe_dump({**tree, "clients": [], "federation": federation}))
    return path

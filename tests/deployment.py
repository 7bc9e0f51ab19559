"""Real Flower processes on this machine: a SuperLink and SuperNodes, all ended whatever happens."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from fedunlearn.training.client_settings import ClientIdentity

ROOT = Path(__file__).parents[1]
CONNECTION = "deployment"
STARTING_S = 60.0
ENDING_S = 10.0
TAIL = 80  # lines of a log that are shown


class Processes:
    """Programs of this environment, each with its own log and its own ``FLWR_HOME``.

    Args:
        folder: new; logs, homes and the programs' working directory are below it.
        inside: name of a program to what it is run by, e.g. in a network namespace.
    """

    def __init__(self, folder: Path, *, inside: Mapping[str, Sequence[str]] | None = None) -> None:
        self._folder = folder
        self._inside = inside or {}
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "work").mkdir(parents=True)

    def start(
        self, name: str, command: Sequence[str], *, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start a program that :meth:`close` will end."""
        home = {"FLWR_HOME": str(self.home(name)), "PYTHONUNBUFFERED": "1"}
        environment = {**os.environ, **home, **(variables or {})}
        # the programs start each other by name, and must not find this checkout by accident
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        if command[0] != "fedunlearn":  # which is this checkout's, and not in a bundle
            environment.pop("PYTHONPATH", None)
        program = str(Path(sys.executable).with_name(command[0]))
        with self.log(name).open("wb") as log:
            self._started[name] = subprocess.Popen(
                [*self._inside.get(name, ()), program, *command[1:]],
                cwd=self._folder / "work",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run(
        self,
        name: str,
        command: Sequence[str],
        *,
        limit_s: float,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run a program to its end, which must come in time; return what it said."""
        self.start(name, command, variables=variables)
        status = self.wait(name, limit_s=limit_s)
        said = self.said(name)
        assert status == 0, f"{name} ended with {status}:\n{said}"
        return said

    def wait(self, name: str, *, limit_s: float) -> int:
        """Wait for a program to end by itself; return its exit status."""
        return self._started[name].wait(timeout=limit_s)

    def said(self, name: str) -> str:
        return self.log(name).read_text(errors="replace")

    def alive(self, name: str) -> bool:
        return self._started[name].poll() is None

    def home(self, name: str) -> Path:
        home = self._folder / "home" / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def kill(self, name: str) -> None:
        """End a program and all that it started at once, without a word of warning."""
        for member in _family(self._started[name].pid):
            with suppress(psutil.NoSuchProcess):
                member.kill()
        self._started[name].wait(timeout=ENDING_S)

    def close(self) -> None:
        """End everything that was started, and what that started, by process id."""
        running = [process for process in self._started.values() if process.poll() is None]
        family = [member for process in running for member in _family(process.pid)]
        for member in reversed(family):
            with suppress(psutil.NoSuchProcess):
                member.terminate()
        _, stubborn = psutil.wait_procs(family, timeout=ENDING_S)
        for member in stubborn:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(stubborn, timeout=ENDING_S)
        for process in self._started.values():
            process.wait(timeout=ENDING_S)

    def show_logs(self) -> None:
        """Print the ends of all logs; pytest shows them when the test failed."""
        for name in self._started:
            lines = self.log(name).read_text(errors="replace").splitlines()
            print(f"---- {name} ----", *lines[-TAIL:], sep="\n")


def _family(pid: int) -> list[psutil.Process]:
    """A process and all that it started, be it in another session."""
    try:
        head = psutil.Process(pid)
        return [head, *head.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def superlink_command(port: int) -> list[str]:
    return [
        *("flower-superlink", "--insecure", "--disable-runtime-dependency-installation"),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]


def supernode_command(client: ClientIdentity, *, superlink: int, port: int) -> list[str]:
    keys = {"client-id": client.id, "role": client.role, "domain": client.domain}
    told = {**keys, "data": client.data}.items()
    return [
        *("flower-supernode", "--insecure"),
        *("--superlink", f"127.0.0.1:{superlink}", "--port", str(port)),
        *("--node-config", " ".join(f"{key}={json.dumps(value)}" for key, value in told)),
    ]


def run_command(**keys: str) -> list[str]:
    given = " ".join(f"{key}={json.dumps(value)}" for key, value in keys.items())
    return ["flwr", "run", str(ROOT), CONNECTION, "--stream", "-c", given]


def free_ports(count: int) -> list[int]:
    """Find ports that nobody uses; all are held until the last is found, so that they differ."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


class Deployment:
    """A SuperLink and its SuperNodes over loopback; ``tag`` ends their names."""

    def __init__(self, processes: Processes, tag: str = "") -> None:
        self._processes = processes
        self._tag = tag
        self._port = 0

    def start(self, clients: Sequence[ClientIdentity]) -> None:
        """Start the SuperLink, wait until it answers, then start a SuperNode a client."""
        self._port, *ports = free_ports(1 + len(clients))
        self._processes.start(f"superlink{self._tag}", superlink_command(self._port))
        self._wait_for_superlink()
        for client, port in zip(clients, ports, strict=True):
            command = supernode_command(client, superlink=self._port, port=port)
            self._processes.start(f"supernode-{client.id}{self._tag}", command)

    def flwr_run(self, config: Path, out: Path, *, limit_s: float) -> str:
        """Run the app; return the streamed log."""
        self._connect("flwr-run")
        command = run_command(config=str(config), out=str(out))
        return self._processes.run("flwr-run", command, limit_s=limit_s)

    def flwr_start(self, config: Path, out: Path) -> None:
        """Run the app, and do not wait for it."""
        self._connect(f"flwr-start{self._tag}")
        command = run_command(config=str(config), out=str(out))
        self._processes.start(f"flwr-start{self._tag}", command)

    def statuses(self) -> list[str]:
        """Say how each run of the SuperLink ended."""
        self._connect("flwr-list")
        command = ["flwr", "list", CONNECTION, "--format", "json"]
        listed = json.loads(self._processes.run("flwr-list", command, limit_s=STARTING_S))
        return [run["status"] for run in listed["runs"]]

    def _connect(self, name: str) -> None:
        (self._processes.home(name) / "config.toml").write_text(
            f'[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self._port}"\ninsecure = true\n'
        )

    def _wait_for_superlink(self) -> None:
        end = time.monotonic() + STARTING_S
        while not _answers(f"http://127.0.0.1:{self._port}/health"):
            assert self._processes.alive(f"superlink{self._tag}"), "the SuperLink ended at once"
            assert time.monotonic() < end, "the SuperLink does not answer"
            time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False

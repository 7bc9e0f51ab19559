"""The round on a real SuperLink and real SuperNodes, over loopback.

The seam: client jobs called by hand, Ray's simulation and the deployment must give the same bits.
"""

import hashlib
import json
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from fedunlearn.aggregation import merge_summaries, write_merge
from fedunlearn.config import RunConfig, load_config
from fedunlearn.events import read_events
from fedunlearn.simulation import simulate
from fedunlearn.summary import open_summaries
from fedunlearn.training.client_settings import ClientIdentity
from tests.deployment import (
    ROOT,
    Deployment,
    Processes,
    run_command,
    superlink_command,
    supernode_command,
)
from tests.leftovers import LEFTOVERS
from tests.pocket_run import pocket_tree, run_clients, write_config
from tests.world import pocket_world

CLIENTS = ("brewing-0", "signals-0", "geography")  # forget, forget, retain
TENSOR_FILES = ("adapter_model.safetensors", "fisher.safetensors", "delta.safetensors")


pytestmark = LEFTOVERS


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket_world(tmp_path_factory.mktemp("pocket") / "world")


def tree_of(world: Path) -> dict[str, Any]:
    """The pocket run with three clients, one after the other, on the CPU, without a sweep."""
    tree = pocket_tree(world)
    tree["clients"] = [client for client in tree["clients"] if client["id"] in CLIENTS]
    tree["model"]["device"] = "cpu"
    tree["federation"] = {"workers": 1}
    del tree["sweep"]
    return tree


def without_list(tree: dict[str, Any], *, expected_clients: int) -> dict[str, Any]:
    """The same run for nodes that say themselves who they are."""
    federation = {"expected_clients": expected_clients, "deadline_s": 120.0}
    return {**tree, "clients": [], "federation": federation}


def digests(run_dir: Path) -> dict[str, str]:
    """SHA-256 of every tensor file of a run, by its path in the run's folder."""
    return {
        str(path.relative_to(run_dir)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run_dir.rglob("*.safetensors"))
        if path.name in TENSOR_FILES
    }


def clients_by_hand(config: RunConfig, run_dir: Path) -> None:
    """Do the round without Flower, on as many threads as a simulated client has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(config.federation.client_cpus)
    try:
        run_clients(config, run_dir)
    finally:
        torch.set_num_threads(threads)


def merge_by_hand(config: RunConfig, run_dir: Path) -> None:
    summaries = open_summaries(run_dir / "summaries")
    for name, chosen in config.merges.items():
        write_merge(merge_summaries(summaries, chosen), run_dir / "merged" / name)


def metas(run_dir: Path) -> list[dict[str, Any]]:
    """What the summaries say, but for what the work took."""
    files = sorted((run_dir / "summaries").glob("*/summary.json"))
    found = [json.loads(path.read_text()) for path in files]
    for meta in found:
        for part in (meta["fisher"], meta["training"]):
            assert part.pop("seconds") > 0
            assert part.pop("peak_memory_bytes") > 0
    return found


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_by_hand_on_ray_and_deployed_a_run_gives_the_same_bits(
    world: Path, tmp_path: Path, processes: Processes
) -> None:
    tree = tree_of(world)
    listed = write_config(tmp_path / "listed.yaml", tree)
    unlisted = write_config(tmp_path / "unlisted.yaml", without_list(tree, expected_clients=3))
    config = load_config(listed)
    hand, ray, deployed = (tmp_path / name for name in ("hand", "ray", "deployed"))

    clients_by_hand(config, hand)
    simulate(config, ray)
    for run_dir in (hand, ray):
        merge_by_hand(config, run_dir)
    deployment = Deployment(processes)
    deployment.start(config.clients)
    deployment.flwr_run(unlisted, deployed, limit_s=240)

    for name in ("config.yaml", "events.jsonl", "report.json", "report.md"):
        assert (deployed / name).is_file(), name
    report = json.loads((deployed / "report.json").read_text())
    assert [client["client_id"] for client in report["clients"]] == sorted(CLIENTS)
    assert report["missing"] == []
    assert all(merge["norm"] > 0 for merge in report["merges"].values())

    wanted = digests(hand)
    assert len(wanted) == 2 * len(CLIENTS) + len(config.merges)
    assert digests(ray) == wanted
    assert digests(deployed) == wanted
    assert metas(hand) == metas(ray) == metas(deployed)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_without_its_data_ends_the_run_with_its_name(
    world: Path, tmp_path: Path, processes: Processes
) -> None:
    tree = without_list(tree_of(world), expected_clients=2)
    config_file = write_config(tmp_path / "unlisted.yaml", tree)
    listed = load_config(write_config(tmp_path / "listed.yaml", tree_of(world)))
    clients = {client.id: client for client in listed.clients}
    broken = replace(clients["brewing-0"], data=str(tmp_path / "gone.jsonl"))
    run_dir = tmp_path / "run"

    deployment = Deployment(processes)
    deployment.start([broken, clients["geography"]])
    said = deployment.flwr_run(config_file, run_dir, limit_s=150)

    assert deployment.statuses() == ["finished:failed"]
    fault = rf"forget client 'brewing-0' \(brewing\): .*{re.escape(broken.data)}"
    assert re.search(fault, said)
    last = read_events(run_dir / "events.jsonl")[-1]
    assert last["event"] == "round_failed"
    assert re.search(fault, last["error"])
    assert "geography" not in last["error"]
    assert digests(run_dir) == {}
    assert not (run_dir / "merged").exists()
    assert not (run_dir / "report.json").exists()


def options(command: Sequence[str]) -> list[str]:
    """A command without the values of its options."""
    return [command[0], *(word for word in command if word.startswith("-"))]


def test_the_documented_commands_are_those_run_here() -> None:
    text = (ROOT / "docs" / "FLOWER.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    documented = [options(shlex.split(line, comments=True)) for line in lines if line.strip()]
    client = ClientIdentity(id="c", role="forget", domain="d", data="/data.jsonl")
    commands = [
        superlink_command(1),
        supernode_command(client, superlink=1, port=2),
        run_command(config="c", out="o"),
    ]
    for command in commands:
        assert options(command) in documented


GRANDPARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_what_a_test_starts_is_ended_with_all_its_children(tmp_path: Path) -> None:
    started = Processes(tmp_path / "processes")
    try:
        started.start("parent", ["python", "-c", GRANDPARENT])
        end = time.monotonic() + 30
        while not (said := started.log("parent").read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        assert psutil.pid_exists(int(said))
    finally:
        started.close()
    assert not started.alive("parent")
    assert not psutil.pid_exists(int(said))

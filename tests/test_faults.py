"""Real processes that are killed at the worst moment, and what a second `flwr run` makes of it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedunlearn.config import load_config
from fedunlearn.events import read_events
from fedunlearn.storage import read_json
from tests.deployment import Deployment, Processes
from tests.pocket_run import write_config
from tests.test_deployment import (
    clients_by_hand,
    digests,
    merge_by_hand,
    tree_of,
    without_list,
)
from tests.world import pocket_world

VICTIM = "geography"


def wait_until(true: Callable[[], bool], what: str, *, limit_s: float = 300.0) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.01)


def heard(run_dir: Path, event: str) -> list[str]:
    """Clients that an event of the log names, in its order."""
    log = run_dir / "events.jsonl"
    found = read_events(log) if log.is_file() else []
    return [one["client_id"] for one in found if one["event"] == event]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_node_and_server_are_killed_and_come_back_elsewhere_with_the_same_bits(
    tmp_path: Path, processes: Processes
) -> None:
    """A node dies between training and upload, then the server dies in mid-round.

    Everything comes back on other ports. What was spooled is used, the node's finished work is
    sent and not made again, and the result is that of a run nobody disturbed.
    """
    world = pocket_world(tmp_path / "world")
    tree = tree_of(world)
    config = load_config(write_config(tmp_path / "listed.yaml", tree))
    hand, run_dir, work = (tmp_path / name for name in ("hand", "run", "work"))
    clients_by_hand(config, hand)
    merge_by_hand(config, hand)
    tree = without_list({**tree, "resume": {"folder": str(work)}}, expected_clients=3)
    tree["federation"]["deadline_s"] = 600.0
    unlisted = write_config(tmp_path / "unlisted.yaml", tree)
    finished = work / VICTIM / "summary" / "summary.json"

    first = Deployment(processes)
    first.start(config.clients)
    first.flwr_start(unlisted, run_dir)
    wait_until(finished.is_file, "the node's training")
    processes.kill(f"supernode-{VICTIM}")
    wait_until(lambda: len(heard(run_dir, "train_reply")) == 2, "the others' upload")
    processes.kill("superlink")
    assert VICTIM not in heard(run_dir, "train_reply")
    assert not (run_dir / "summaries").exists()
    made = finished.stat().st_mtime_ns

    for client in config.clients:
        if client.id != VICTIM:
            processes.kill(f"supernode-{client.id}")
    again = Deployment(processes, "-again")
    again.start(config.clients)
    again.flwr_run(unlisted, run_dir, limit_s=400)

    assert sorted(heard(run_dir, "kept")) == sorted({"brewing-0", "signals-0"})
    assert heard(run_dir, "train_reply")[2:] == [VICTIM]
    assert finished.stat().st_mtime_ns == made
    assert digests(run_dir) == digests(hand)
    fates = {one["client_id"]: one["fate"] for one in read_json(run_dir / "report.json")["fates"]}
    assert fates == {"brewing-0": "unlearned", "signals-0": "unlearned", VICTIM: "protected"}

"""Real rounds on Ray: quick ones always, those with dying and hanging clients marked slow."""

import hashlib
import json
import logging
import re
import time
from pathlib import Path

import pytest

from fedunlearn.aggregation import MergeSettings, RelativeEpsilon, merge_summaries
from fedunlearn.client_app import make_client_app
from fedunlearn.config import FederationSettings, RunConfig
from fedunlearn.errors import InputError, RunError
from fedunlearn.events import read_events
from fedunlearn.simulation import backend_config, quiet_logs, simulate
from fedunlearn.summary import open_summaries
from tests.leftovers import LEFTOVERS
from tests.strategies.federation import federation, job

# Ray's compiled side prints this, now and then, when actors end while it is shutting down.
HARMLESS = re.compile("Failed to push error to driver")

pytestmark = LEFTOVERS


def run(config: RunConfig, run_dir: Path) -> tuple[str, ...]:
    return simulate(config, run_dir, client_app=make_client_app(lambda _: config, run_job=job))


def delta_hash(run_dir: Path) -> str:
    merge = MergeSettings(method="firm", epsilon=RelativeEpsilon(relative=0.3))
    delta = merge_summaries(open_summaries(run_dir / "summaries"), merge).delta
    digest = hashlib.sha256()
    for name, tensor in sorted(delta.items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def stored(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "summaries").iterdir())


def test_a_round_on_ray_stores_summaries_quietly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = federation(tmp_path, workers=1)
    capfd.readouterr()
    seen: list[tuple[int, int]] = []
    warnings = simulate(config, tmp_path / "run", progress=lambda *step: seen.append(step))
    assert warnings == ()
    assert stored(tmp_path / "run") == ["f-1", "f-2", "r-1"]
    assert seen[-1] == (3, 3)
    events = [event["event"] for event in read_events(tmp_path / "run" / "events.jsonl")]
    assert events[0] == "strategy"
    assert events[-1] == "round_done"
    said = capfd.readouterr()
    assert said.out == ""
    assert [line for line in said.err.splitlines() if not HARMLESS.search(line)] == []


@pytest.mark.slow
def test_one_worker_and_three_give_the_same_update(tmp_path: Path) -> None:
    hashes = []
    for workers in (1, 3):
        config = federation(tmp_path / str(workers), "f-3", workers=workers)
        # the same data and model for both, as a client's seed depends on neither path
        run(config, tmp_path / str(workers) / "run")
        hashes.append(delta_hash(tmp_path / str(workers) / "run"))
    assert hashes[0] == hashes[1]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_whose_process_dies_is_named_and_fails_nobody_else(
    workers: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = federation(tmp_path, "dies-1", workers=workers, allow_partial=True, deadline_s=300.0)
    warnings = run(config, tmp_path / "run")
    assert stored(tmp_path / "run") == ["f-1", "f-2", "r-1"]
    (warning,) = warnings
    assert "raylet" not in capfd.readouterr().out
    assert "forget client 'dies-1' (brewing): its process died" in warning
    assert warning.endswith("the data of 'dies-1' in 'brewing' is not unlearned")


@pytest.mark.slow
def test_by_default_a_client_that_raises_ends_the_run(tmp_path: Path) -> None:
    config = federation(tmp_path, "raises-1", workers=1)
    with pytest.raises(RunError, match=r"forget client 'raises-1' \(brewing\): ValueError: boom"):
        run(config, tmp_path / "run")


@pytest.mark.slow
def test_a_client_that_hangs_is_missing_at_the_deadline_and_the_run_ends(tmp_path: Path) -> None:
    config = federation(tmp_path, "hangs-1", workers=2, deadline_s=40.0)
    start = time.monotonic()
    with pytest.raises(RunError, match=r"'hangs-1' \(brewing\): its summary did not come"):
        run(config, tmp_path / "run")
    assert time.monotonic() - start < 240


@pytest.mark.slow
def test_an_engine_that_cannot_start_says_so_without_waiting(tmp_path: Path) -> None:
    config = federation(tmp_path, workers=1, client_gpus=64.0)
    start = time.monotonic()
    with pytest.raises(RunError, match=r"the simulation failed: .*(GPU|ActorPool|crashed)"):
        run(config, tmp_path / "run")
    assert time.monotonic() - start < 60


def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run" / "summaries" / "old").mkdir(parents=True)
    with pytest.raises(InputError, match="already holds summaries"):
        run(federation(tmp_path), tmp_path / "run")


def test_ray_gets_the_workers_asked_for_and_restarts_those_that_die() -> None:
    asked = FederationSettings(client_cpus=2, client_gpus=0.5, workers=3)
    config = backend_config(asked)
    assert config["init_args"]["num_cpus"] == 6
    assert config["client_resources"] == {
        "num_cpus": 2,
        "num_gpus": 0.5,
        "max_restarts": -1,
        "max_task_retries": 1,
    }
    assert "num_cpus" not in backend_config(FederationSettings())["init_args"]
    assert json.dumps(config)


def test_logs_are_quiet_for_the_block_only() -> None:
    before = logging.getLogger("flwr").level
    with quiet_logs(verbose=False):
        assert not logging.getLogger("flwr").isEnabledFor(logging.CRITICAL)
    assert logging.getLogger("flwr").level == before
    with quiet_logs(verbose=True):
        assert logging.getLogger("flwr").level == before

"""The server's work on a real Ray cluster of this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedunlearn.aggregation import MergeSettings, RelativeEpsilon, Spread, merge_to, read_merge
from fedunlearn.errors import InputError, RunError
from fedunlearn.ray_workers import ray_workers
from fedunlearn.summary import open_summaries, save_summary
from tests.pico import pico_round

pytestmark = [  # Ray leaves the files open to which its processes write
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def spread() -> Iterator[Spread]:
    with ray_workers() as workers:
        yield workers


@pytest.fixture
def summaries(tmp_path: Path) -> Path:
    for summary in pico_round():
        save_summary(summary, tmp_path / "summaries" / summary.meta.client_id)
    return tmp_path / "summaries"


@pytest.mark.parametrize("method", ["firm", "fulm", "ties", "knots", "firm_matched"])
def test_the_same_bits_as_in_one_process(
    spread: Spread, summaries: Path, tmp_path: Path, method: str
) -> None:
    merge = MergeSettings(method=method, gamma=1.7, epsilon=RelativeEpsilon(relative=0.3))
    here = merge_to(tmp_path / "here", open_summaries(summaries), merge)
    there = merge_to(tmp_path / "there", open_summaries(summaries), merge, spread=spread)
    assert there == here
    one, other = (load_file(tmp_path / place / "delta.safetensors") for place in ("here", "there"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_summaries_in_memory_travel_too(spread: Spread, tmp_path: Path) -> None:
    report = merge_to(tmp_path / "m", pico_round(), MergeSettings(), spread=spread)
    assert report == read_merge(tmp_path / "m").report


def test_a_fault_of_the_work_keeps_its_words(spread: Spread, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at gamma=1e"):
        merge_to(tmp_path / "m", pico_round(), MergeSettings(gamma=1e300), spread=spread)
    assert not (tmp_path / "m").exists()


def test_the_command_line_spreads_too(summaries: Path, tmp_path: Path) -> None:
    for workers in ("threads", "ray"):
        ran = subprocess.run(
            [
                *(sys.executable, "-c", "from fedunlearn.cli import main; main()", "merge"),
                *(str(summaries), "--out", str(tmp_path / workers), "--workers", workers),
            ],
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr == ""
    one, other = (tmp_path / workers / "delta.safetensors" for workers in ("threads", "ray"))
    assert one.read_bytes() == other.read_bytes()


def test_results_come_in_order_and_a_dead_worker_is_named(spread: Spread) -> None:
    assert list(spread(abs, range(-20, 0))) == list(range(20, 0, -1))
    with pytest.raises(RunError, match="Ray worker died"):
        list(spread(os._exit, [1]))

import time
from pathlib import Path

import pytest
import torch

from fedunlearn.training import footprint as module
from fedunlearn.training.footprint import footprint

CPU = torch.device("cpu")


def test_it_measures_its_own_block_only() -> None:
    torch.ones(2**26).sum()  # 256 MiB, before
    with footprint(CPU) as small:
        pass
    with footprint(CPU) as large:
        torch.ones(2**26).sum()
        time.sleep(0.02)
    assert large.seconds >= 0.02 > small.seconds
    assert large.peak_memory_bytes - small.peak_memory_bytes > 200 * 2**20


def test_without_linux_s_files_the_process_s_own_peak_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("_STATUS", "_RESET"):
        monkeypatch.setattr(module, name, tmp_path / "no" / name)
    with footprint(CPU) as taken:
        pass
    assert taken.peak_memory_bytes > 50 * 2**20


def test_it_is_filled_in_when_the_block_raises() -> None:
    with pytest.raises(RuntimeError, match="stop"), footprint(CPU) as taken:
        raise RuntimeError("stop")
    assert taken.peak_memory_bytes > 0

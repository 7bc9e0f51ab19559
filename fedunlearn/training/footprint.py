"""What a piece of work took: seconds and peak memory. Reported only; no result depends on it."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class Footprint:
    """Time and memory of one block.

    Attributes:
        seconds: wall clock.
        peak_memory_bytes: on CUDA, the most that PyTorch had allocated on the device during the
            block; on the CPU, the process's largest resident set during it, or since its start
            where the system keeps no mark that can be reset (other than Linux).
    """

    seconds: float = 0.0
    peak_memory_bytes: int = 0


@contextmanager
def footprint(device: torch.device) -> Iterator[Footprint]:
    """Measure the block, which works on ``device``; the result is filled in at its end."""
    taken = Footprint()
    _reset_peak(device)
    start = time.perf_counter()
    try:
        yield taken
    finally:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.seconds = round(time.perf_counter() - start, 3)
        taken.peak_memory_bytes = _peak(device)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            _RESET.write_text("5")  # the kernel's word for: forget the high-water mark


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

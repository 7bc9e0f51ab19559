"""Peak memory of a block, for the benchmarks."""

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """Watch the anonymous resident memory of the block; the growth is known afterwards."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # what was freed before is not to hide what is taken now
    before, seen, done = anonymous(), [0], Event()

    def watch() -> None:
        while not done.wait(0.002):
            seen.append(anonymous() - before)

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: max(seen)
    finally:
        done.set()
        watcher.join()


def anonymous() -> int:
    """Resident bytes that are no file's (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this kernel does not tell anonymous memory from files")

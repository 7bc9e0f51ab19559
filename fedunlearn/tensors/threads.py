"""Blocks of a tensor worked on by several threads, each of which computes alone.

PyTorch's own threads meet after every operation, which costs more than the operation where blocks
fit a cache, and far more where other programs want the cores too. Here every thread takes whole
blocks. What is computed for a block does not depend on the number of threads, and results come
in the order of the blocks.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier, local
from typing import TypeVar

import torch

from fedunlearn.names import OWN_THREADS

T = TypeVar("T")
R = TypeVar("R")
_here = local()


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Call ``work`` on every item with as many threads as PyTorch may use here.

    Args:
        work: called in other threads, several calls at a time.
        items: what to call it on; a single one is worked on by the calling thread.

    Returns:
        The results in the order of the items. An exception of a call is raised in its place.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) <= 1 or getattr(_here, "in_pool", False):
        return map(work, items)
    return _pool(os.getpid(), threads).map(work, items)


def alone(work: Callable[[], R]) -> R:
    """Call ``work`` on one thread: what is small costs less than other threads' waiting for it.

    Threads of a linear algebra library spin for a while after each of its calls, on cores that
    the blocks of :func:`in_threads` need; and a result may depend on how many there are.
    """
    threads = torch.get_num_threads()
    if threads == 1 or getattr(_here, "in_pool", False):
        return work()
    return _pool(os.getpid(), threads).submit(work).result()


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """A pool of this process whose threads start no others; a forked child needs its own."""
    pool = ThreadPoolExecutor(threads, OWN_THREADS, initializer=_compute_alone)
    everyone = Barrier(threads)
    list(pool.map(lambda _: everyone.wait(), range(threads)))
    torch.set_num_threads(threads)  # what the initialisers set holds for threads yet to come too
    return pool


def _compute_alone() -> None:
    _here.in_pool = True
    torch.get_num_threads()  # a thread's first question sets its number: ask before setting it
    torch.set_num_threads(1)

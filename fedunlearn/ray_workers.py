"""Spreads the server's work on the weights of a model over a Ray cluster."""

import logging
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from fedunlearn.aggregation import Spread
from fedunlearn.errors import RunError
from fedunlearn.offline import go_offline

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2
"""Weights begun for each core: enough to keep all busy, few enough to hold their results."""


@contextmanager
def ray_workers() -> Iterator[Spread]:
    """Yield a spread over the cluster that ``RAY_ADDRESS`` names, or over one started here.

    A weight is one task on one core. Summaries that lie in files are opened by the workers: on
    a cluster of several machines the folder must be there under the same path. Results do not
    depend on where or in what order the tasks run.

    Raises:
        RunError: a worker died.
    """
    go_offline()
    import ray

    started = not ray.is_initialized()
    if started:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a tip on a switch that is set here
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield _RaySpread(ray)
    finally:
        if started:
            ray.shutdown()


class _RaySpread:
    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(num_cpus=1)(_apply)

    def __call__(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        shared = self._ray.put(work)
        limit = _AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        begun: deque[Any] = deque()
        for item in items:
            begun.append(self._task.remote(shared, item))
            if len(begun) >= limit:
                yield self._result(begun.popleft())
        while begun:
            yield self._result(begun.popleft())

    def _result(self, begun: Any) -> Any:
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(begun)
        except exceptions.RayTaskError as fault:
            raise fault.cause from None
        except exceptions.RayError as fault:
            raise RunError(
                f"a Ray worker died while merging ({type(fault).__name__}); it may be out of "
                "memory: use fewer cores, or leave out --workers ray"
            ) from fault


def _apply(work: Callable[[T], R], item: T) -> R:
    return work(item)

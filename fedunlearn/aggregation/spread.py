"""Who does the work on the weights of a model, which are independent of each other."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Spread(Protocol):
    """Calls ``work`` on every item and yields the results in the order of the items.

    Where the work is done elsewhere, ``work``, items and results must be picklable.
    """

    def __call__(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Start the work; results come as they are asked for."""
        ...


def in_turn(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Work here, one item after the other."""
    return map(work, items)

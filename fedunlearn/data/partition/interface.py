"""How the records of one source are dealt out to clients, and the registry of the ways.

A partitioner sees only how many records there are, and the value of one column of each; it puts
every record into exactly one part. Draws come from SHA-256 of ``seed`` and Python's own generator,
so that nodes with other library versions deal out the same parts.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

from fedunlearn.errors import DataError
from fedunlearn.registry import Registry
from fedunlearn.seeding import derive
from fedunlearn.settings import settings


@settings
class Partitioner:
    """Deals records out; entries are frozen dataclasses of their hyperparameters."""

    @property
    def key_column(self) -> str | None:
        """Column that decides where a record goes; ``None``: its place alone."""
        return None

    @property
    def wanted(self) -> Hashable:
        """The part this client holds."""
        raise NotImplementedError

    @property
    def expected(self) -> Sequence[Hashable]:
        """Every part there must be."""
        raise NotImplementedError

    def assign(self, keys: Sequence[str]) -> list[Hashable]:
        """Name the part of every record.

        Args:
            keys: value of ``key_column`` for every record, in the source's order.
        """
        raise NotImplementedError

    def select(self, keys: Sequence[str], *, source: str) -> list[int]:
        """Return the places of this client's records, in the source's order.

        Args:
            keys: value of ``key_column`` for every record.
            source: named in faults.

        Raises:
            DataError: a part would get no record; the text says which.
        """
        assigned = self.assign(keys)
        sizes = Counter(assigned)
        empty = [part for part in self.expected if not sizes[part]]
        if empty:
            raise DataError(f"{source}: {self.shortage(empty, sizes, len(keys))}")
        return [place for place, part in enumerate(assigned) if part == self.wanted]

    def shortage(self, empty: Sequence[Hashable], sizes: Counter[Hashable], records: int) -> str:
        """Say which parts get nothing and what to do."""
        named = ", ".join(map(str, empty))
        return f"part {named} of {len(self.expected)} would get none of the {records} records"


@settings
class NumberedPartitioner(Partitioner):
    """A partitioner whose parts are numbers from 0.

    Attributes:
        parts: how many there are.
        part: the one this client holds, counted from 0.
        seed: of the draw; clients that share a source must have the same.
    """

    parts: int
    part: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.parts < 1:
            raise ValueError(f"parts must be >= 1, got {self.parts}")
        if not 0 <= self.part < self.parts:
            raise ValueError(f"part must be in 0..{self.parts - 1}, got {self.part}")

    @property
    def wanted(self) -> int:
        """The number of this client's part."""
        return self.part

    @property
    def expected(self) -> Sequence[int]:
        """All numbers below ``parts``."""
        return range(self.parts)


PARTITIONERS = Registry[Partitioner]("partitioner")


def drawn_order(count: int, *names: str | int, seed: int) -> list[int]:
    """Return a permutation of ``range(count)`` that depends on ``seed`` and ``names`` only."""
    return sorted(range(count), key=lambda place: derive(seed, *names, place))

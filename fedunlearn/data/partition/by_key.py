"""By author, or any other column: records with one value stay together."""

from collections import Counter
from collections.abc import Hashable, Sequence

from fedunlearn.data.partition.interface import PARTITIONERS, NumberedPartitioner
from fedunlearn.seeding import derive
from fedunlearn.settings import settings


@PARTITIONERS.register("key")
@settings
class ByKey(NumberedPartitioner):
    """All records of one author (or other value of a column) go to one client.

    The largest groups are dealt out first, each to the part that has fewest records so far; equal
    ones in an order drawn from ``seed``.

    Attributes:
        column: e.g. ``author``.
    """

    column: str

    @property
    def key_column(self) -> str:
        """``column``."""
        return self.column

    def assign(self, keys: Sequence[str]) -> list[Hashable]:
        """Deal whole groups out."""
        sizes = Counter(keys)
        order = sorted(sizes, key=lambda key: (-sizes[key], derive(self.seed, "key", key)))
        loads, home = [0] * self.parts, dict[str, Hashable]()
        for key in order:
            part = min(range(self.parts), key=lambda one: (loads[one], one))
            home[key] = part
            loads[part] += sizes[key]
        return [home[key] for key in keys]

    def shortage(self, empty: Sequence[Hashable], sizes: Counter[Hashable], records: int) -> str:
        """Name the column that has too few values."""
        return (
            f"column {self.column!r} has {self.parts - len(empty)} values for {self.parts} parts; "
            f"part {', '.join(map(str, empty))} would get no record. Take fewer parts"
        )

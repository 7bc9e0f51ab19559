"""Given per client: a column says whose a record is."""

from collections import Counter
from collections.abc import Hashable, Sequence

from fedunlearn.data.partition.interface import PARTITIONERS, Partitioner
from fedunlearn.settings import settings


@PARTITIONERS.register("given")
@settings
class Given(Partitioner):
    """A column of the source names the part of every record.

    Attributes:
        column: that names it, e.g. ``client``.
        part: value of the column whose records this client holds.
    """

    column: str
    part: str

    @property
    def key_column(self) -> str:
        """``column``."""
        return self.column

    @property
    def wanted(self) -> str:
        """The value asked for."""
        return self.part

    @property
    def expected(self) -> Sequence[str]:
        """The value asked for; what others ask for is not known here."""
        return (self.part,)

    def assign(self, keys: Sequence[str]) -> list[Hashable]:
        """Take the column as it is."""
        return list(keys)

    def shortage(self, empty: Sequence[Hashable], sizes: Counter[Hashable], records: int) -> str:
        """List the values there are."""
        known = ", ".join(sorted(map(repr, sizes))[:20])
        return f"column {self.column!r} never says {self.part!r}; it says {known}"

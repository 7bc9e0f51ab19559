"""Disjoint shards of equal size, as in the papers' experiments."""

from collections.abc import Hashable, Sequence
from typing import Literal

from fedunlearn.data.partition.interface import PARTITIONERS, NumberedPartitioner, drawn_order
from fedunlearn.settings import settings


@PARTITIONERS.register("shards")
@settings
class Shards(NumberedPartitioner):
    """Disjoint shards whose sizes differ by one record at most.

    Attributes:
        order: ``drawn`` mixes the records first; ``given`` cuts the source into blocks.
    """

    order: Literal["drawn", "given"] = "drawn"

    def assign(self, keys: Sequence[str]) -> list[Hashable]:
        """Deal the records out in turn, or block by block."""
        count = len(keys)
        if self.order == "given":
            return [place * self.parts // count for place in range(count)]
        assigned: list[Hashable] = [0] * count
        for turn, place in enumerate(drawn_order(count, "shards", seed=self.seed)):
            assigned[place] = turn % self.parts
        return assigned

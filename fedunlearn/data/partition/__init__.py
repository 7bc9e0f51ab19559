"""Ways to deal the records of a source out to clients, by name."""

from fedunlearn.data.partition import by_key, dirichlet, given, shards
from fedunlearn.data.partition.interface import (
    PARTITIONERS,
    NumberedPartitioner,
    Partitioner,
    drawn_order,
)

__all__ = [
    "PARTITIONERS",
    "NumberedPartitioner",
    "Partitioner",
    "by_key",
    "dirichlet",
    "drawn_order",
    "given",
    "shards",
]

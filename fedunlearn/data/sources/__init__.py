"""Data sources, by name."""

from fedunlearn.data.sources import hub, local, mmlu, muse, tofu, wmdp
from fedunlearn.data.sources.interface import SOURCES, Entry, Source, build_partitioner

__all__ = [
    "SOURCES",
    "Entry",
    "Source",
    "build_partitioner",
    "hub",
    "local",
    "mmlu",
    "muse",
    "tofu",
    "wmdp",
]

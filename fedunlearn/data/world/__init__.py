"""The embedded world: invented facts, written as ordinary data files."""

from fedunlearn.data.world.files import WorldSize, write_world

__all__ = ["WorldSize", "write_world"]

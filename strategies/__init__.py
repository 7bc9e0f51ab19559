"""Flower strategies: records in, calls into ``fedunlearn``, records out."""

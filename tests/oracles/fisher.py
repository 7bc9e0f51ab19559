"""Eq. 2 and 3 of the FIRM paper, entry by entry in Python floats."""

import math


def process(fisher: list[float], alpha: float, eps0: float) -> list[float]:
    largest = max(fisher)
    if largest == 0.0:
        return [0.0] * len(fisher)
    scaled = [value / (largest + eps0) for value in fisher]
    kept = max(1, math.floor(alpha * len(fisher)))
    threshold = sorted(scaled, reverse=True)[kept - 1]
    return [value if value >= threshold else 0.0 for value in scaled]


def mean(rows: list[list[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]

"""Wilson's score interval of a proportion."""

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Interval:
    """A confidence interval, both ends included."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference with this interval has a sign."""
        return self.low > 0.0 or self.high < 0.0


def wilson(successes: float, n: int, *, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a proportion.

    It is the set of p with ``|successes / n - p| <= z sqrt(p (1 - p) / n)``, so it stays within
    [0, 1] and is sensible at 0 and at n successes, where the usual standard error is 0.

    Args:
        successes: in [0, n].
        n: number of trials, >= 1.
        confidence: in (0, 1).

    Raises:
        ValueError: a number out of its range.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n and n >= 1, got {successes} of {n}")
    share, squared = successes / n, _quantile(confidence) ** 2
    centre = (share + squared / (2 * n)) / (1 + squared / n)
    spread = math.sqrt(squared * (share * (1 - share) / n + squared / (4 * n * n)))
    half = spread / (1 + squared / n)
    # In exact arithmetic the ends enclose the share; at 0 and n one of them equals it.
    return Interval(max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share)))


def _quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)

"""What every metric states of itself, the families there are, and the registry."""

from dataclasses import fields
from typing import ClassVar

from fedunlearn.metrics.observed import Observed
from fedunlearn.registry import Registry
from fedunlearn.settings import settings

METRICS = Registry["Metric"]("metric")


@settings
class Metric:
    """A metric; entries are frozen dataclasses of their options whose ``__call__`` is the maths.

    Attributes:
        definition: the formula in a line; goes into every result, so that two tables can be
            compared by what they say and not by what their columns are called.
        source: paper and public implementation it agrees with.
        direction: what a value says of an unlearned model, and which is better.
    """

    definition: ClassVar[str]
    source: ClassVar[str]
    direction: ClassVar[str]

    @property
    def options(self) -> dict[str, object]:
        """The values of its settings."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@settings
class TokenMetric(Metric):
    """A number for one text, from what one pass of the model showed of its target tokens."""

    def __call__(self, seen: Observed) -> float:
        """Score one text."""
        raise NotImplementedError


@settings
class TextMetric(Metric):
    """A number for one generated answer."""

    def __call__(self, generated: str, answer: str) -> float:
        """Compare what was generated with what would be right; in [0, 1]."""
        raise NotImplementedError

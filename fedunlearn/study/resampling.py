"""Every setting's scores, as measured and in every bootstrap resample of the questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedunlearn.evaluation import SetScores
from fedunlearn.metrics.wilson import Interval, wilson
from fedunlearn.scores import METRIC_NAMES, Metric
from fedunlearn.seeding import generator
from fedunlearn.study.schema import Chances, Estimate, SetEstimates
from fedunlearn.study.uncertainty import percentile_interval, resampled_means

Array = NDArray[np.float64]
Measured = Mapping[str, SetScores]


@dataclass(frozen=True, eq=False)
class Resampled:
    """Scores of p models on the same questions.

    Attributes:
        models: question set to scores per question, for every model.
        chances: number of resamples and seed.
    """

    models: Sequence[Measured]
    chances: Chances

    def observed(self, name: str, metric: Metric) -> Array | None:
        """Mean scores on one set, shape (p,); ``None`` where the set has no such score."""
        scores = self._scores(name, metric)
        return None if scores is None else scores.mean(axis=0)

    def drawn(self, name: str, metric: Metric) -> Array | None:
        """Mean scores in every resample, shape (resamples, p); the draws are shared by all p."""
        return self._drawn.get((name, metric))

    @cached_property
    def _drawn(self) -> dict[tuple[str, Metric], Array]:
        found = {}
        for name in self.models[0] if self.models else ():
            for metric in METRIC_NAMES:
                if (scores := self._scores(name, metric)) is not None:
                    found[name, metric] = resampled_means(
                        scores,
                        resamples=self.chances.resamples,
                        generator=generator(self.chances.seed, "bootstrap", name, metric),
                    )
        return found

    def _scores(self, name: str, metric: Metric) -> Array | None:
        rows = [_values(model[name], metric) for model in self.models]
        return np.array(rows).T if rows and rows[0] else None

    def estimates(self) -> list[dict[str, SetEstimates]]:
        """Every model's scores with their intervals."""
        return [
            {
                name: SetEstimates(
                    scores.kind,
                    scores.domain,
                    **{metric: self._estimate(place, name, metric) for metric in METRIC_NAMES},
                )
                for name, scores in model.items()
            }
            for place, model in enumerate(self.models)
        ]

    def _estimate(self, place: int, name: str, metric: Metric) -> Estimate | None:
        values = _values(self.models[place][name], metric)
        if not values:
            return None
        return Estimate(
            sum(values) / len(values), len(values), self._interval(place, name, metric, values)
        )

    def _interval(self, place: int, name: str, metric: Metric, values: Sequence[float]) -> Interval:
        confidence = self.chances.confidence
        if metric == "choice_accuracy":
            return wilson(sum(values), len(values), confidence=confidence)
        return percentile_interval(self._drawn[name, metric][:, place], confidence=confidence)


@dataclass(frozen=True, eq=False)
class Plane:
    """What settings are judged by: forget sets, and means over the sets of a kind.

    Attributes:
        scores: of p settings.
        metric: that forgetting is matched on.
    """

    scores: Resampled
    metric: Metric

    def forget_sets(self) -> list[str]:
        """Names of the forget sets."""
        return self._sets("forget")

    def forget(self, name: str) -> tuple[Array, Array]:
        """Scores on one forget set: shape (p,) as observed, (resamples, p) as drawn."""
        observed, drawn = (
            one(name, self.metric) for one in (self.scores.observed, self.scores.drawn)
        )
        if observed is None or drawn is None:
            raise ValueError(f"forget set {name!r} has no {self.metric}")
        return observed, drawn

    def group(self, kind: str) -> tuple[Array, Array] | None:
        """Mean over the sets of a kind, each set once; ``None`` where nothing was measured.

        Kept sets without the leading metric are read by multiple-choice accuracy.
        """
        metrics: tuple[Metric, ...] = (self.metric, "choice_accuracy")
        for metric in metrics if kind != "forget" else metrics[:1]:
            pairs = [
                (observed, drawn)
                for name in self._sets(kind)
                if (observed := self.scores.observed(name, metric)) is not None
                and (drawn := self.scores.drawn(name, metric)) is not None
            ]
            if pairs:
                parts = zip(*pairs, strict=True)
                now, again = (np.mean(np.stack(part), axis=0) for part in parts)
                return now, again
        return None

    def _sets(self, kind: str) -> list[str]:
        first = self.scores.models[0] if self.scores.models else {}
        return [name for name, one in first.items() if one.kind == kind]


def _values(scores: SetScores, metric: Metric) -> Sequence[float]:
    found: Sequence[float] = (
        scores.choice_correct if metric == "choice_accuracy" else getattr(scores, metric)
    )
    return found

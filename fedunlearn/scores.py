"""From a score per question to what a report states: a mean, its uncertainty, and n."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from fedunlearn.evaluation import SetScores
from fedunlearn.matching import Setting
from fedunlearn.metrics import MembershipAuc, PrivLeak

Metric = Literal[
    "rouge_l_recall",
    "answer_probability",
    "choice_accuracy",
    "extraction_strength",
    "truth_ratio",
]
METRIC_NAMES: dict[Metric, str] = {
    "rouge_l_recall": "ROUGE-L recall",
    "answer_probability": "answer probability",
    "choice_accuracy": "multiple-choice accuracy",
    "extraction_strength": "extraction strength",
    "truth_ratio": "truth ratio (forget: min(R, 1/R), should rise; else max(0, 1 - R))",
}
HEADLINE: tuple[Metric, ...] = ("rouge_l_recall", "answer_probability", "choice_accuracy")
"""What the tables in front show; the others have tables of their own."""


@dataclass(frozen=True)
class Score:
    """A mean over questions.

    Attributes:
        mean: in [0, 1].
        n: number of questions.
        standard_error: of the mean, from the spread over questions; ``None`` for one question.
    """

    mean: float
    n: int
    standard_error: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Score | None":
        """Return the score of some questions; ``None`` where there are none."""
        if not values:
            return None
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(fmean(values), len(values), error)


@dataclass(frozen=True)
class SetReport:
    """One question set under one model; a score is ``None`` where it was not measured.

    Attributes:
        kind: the set's.
        domain: the set's.
        rouge_l_recall: of greedy answers.
        answer_probability: length-normalised.
        choice_accuracy: of multiple choice.
        extraction_strength: of the answers.
        truth_ratio: where the data has other wordings and wrong answers.
        privleak: in percent, where the set has a holdout: 0 is best, far below 0 the set is still
            told from what was never learned, far above it stands out as unlearned.
    """

    kind: str
    domain: str
    rouge_l_recall: Score | None
    answer_probability: Score | None
    choice_accuracy: Score | None
    extraction_strength: Score | None = None
    truth_ratio: Score | None = None
    privleak: float | None = None

    def mean(self, metric: Metric) -> float | None:
        """Return the mean of one metric."""
        score: Score | None = getattr(self, metric)
        return None if score is None else score.mean


def summarise(measured: Mapping[str, SetScores]) -> dict[str, SetReport]:
    """Reduce every set's scores per question, in the order given."""
    return {
        name: SetReport(
            kind=scores.kind,
            domain=scores.domain,
            rouge_l_recall=Score.of(scores.rouge_l_recall),
            answer_probability=Score.of(scores.answer_probability),
            choice_accuracy=Score.of(scores.choice_correct),
            extraction_strength=Score.of(scores.extraction_strength),
            truth_ratio=Score.of(scores.truth_ratio),
            privleak=_privleak(scores),
        )
        for name, scores in measured.items()
    }


def _privleak(scores: SetScores) -> float | None:
    """Percent by which the attack fails less or more than on a retrained model."""
    if not scores.members or not scores.others:
        return None
    auc = MembershipAuc()(scores.members, scores.others)
    return PrivLeak()(auc, 0.5 if scores.retrained_auc is None else scores.retrained_auc)


def leading_metric(sets: Mapping[str, SetReport]) -> Metric:
    """Name the metric that forgetting is matched on.

    ROUGE-L recall where every forget set has it, else multiple-choice accuracy.
    """
    forget = [one for one in sets.values() if one.kind == "forget"]
    has_rouge = all(one.rouge_l_recall is not None for one in forget)
    return "rouge_l_recall" if has_rouge else "choice_accuracy"


def group_mean(sets: Mapping[str, SetReport], kind: str, metric: Metric) -> float | None:
    """Mean over the sets of one kind, each set counting once; ``None`` without any."""
    return _mean(one.mean(metric) for one in sets.values() if one.kind == kind)


def setting(merge: str, gamma: float, sets: Mapping[str, SetReport], *, metric: Metric) -> Setting:
    """Reduce a model's scores to what matching looks at.

    What is kept is read from the leading metric, or from multiple-choice accuracy where the
    sets have no other.
    """
    forget = {name: one.mean(metric) for name, one in sets.items() if one.kind == "forget"}
    retain, utility = (_kept(sets, kind, metric) for kind in ("retain", "utility"))
    return Setting(
        merge=merge,
        gamma=gamma,
        forget={name: value for name, value in forget.items() if value is not None},
        retain=retain,
        utility=utility,
    )


def _kept(sets: Mapping[str, SetReport], kind: str, metric: Metric) -> float | None:
    mean = group_mean(sets, kind, metric)
    return group_mean(sets, kind, "choice_accuracy") if mean is None else mean


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None

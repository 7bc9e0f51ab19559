"""Accuracies of multiple-choice records, over all and by subject."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from fedunlearn.evaluation.results import Result, result
from fedunlearn.evaluation.samples import Record
from fedunlearn.metrics import ChoiceAccuracy


def accuracy(name: str, records: Sequence[Record]) -> Result:
    """Mean credit with Wilson's interval; says how many questions had a tie."""
    found = result(
        name,
        "choice_accuracy",
        ChoiceAccuracy(),
        [row["choice_accuracy"] for row in records],
        fmean,
        proportion=True,
    )
    return replace(found, options={"ties": sum(bool(row["tie"]) for row in records)})


def by_subject(name: str, records: Sequence[Record]) -> Iterable[Result]:
    """An accuracy a subject, in the order of their names, where there are several."""
    subjects = sorted({str(row["group"]) for row in records})
    for subject in subjects if len(subjects) > 1 else ():
        rows = [row for row in records if row["group"] == subject]
        yield accuracy(f"{name}/{subject}/accuracy", rows)

"""Reports made by hand, so that every number in a test is known."""

from collections.abc import Mapping

from fedunlearn.matching import Comparison, compare_all
from fedunlearn.report import (
    FORMAT_VERSION,
    LIMITS,
    ClientReport,
    MergeReportRow,
    MissingClient,
    Report,
    RunFacts,
    SweepPoint,
)
from fedunlearn.scores import Score, SetReport, setting

Scores = tuple[float, float, float, float]
"""ROUGE-L recall on brewing, signals, geography (retain) and utility."""

BASE: Scores = (1.0, 0.98, 0.99, 0.97)
SWEEP: dict[str, dict[float, Scores]] = {
    "firm": {0.5: (0.6, 0.55, 0.97, 0.97), 1.0: (0.3, 0.32, 0.9, 0.95), 2.0: (0.1, 0.1, 0.5, 0.8)},
    "firm_base": {0.5: (0.5, 0.5, 0.9, 0.9), 1.0: (0.28, 0.3, 0.8, 0.9)},
    "ties": {0.5: (0.31, 0.35, 0.93, 0.95), 1.0: (0.0, 0.0, 0.2, 0.3)},
    "sum": {1.0: (0.0, 0.01, 0.1, 0.05)},
}


def sets(scores: Scores) -> dict[str, SetReport]:
    """Four question sets with 20 questions each; two without multiple choice."""
    kinds = {"brewing": "forget", "signals": "forget", "geography": "retain", "utility": "utility"}
    return {
        name: SetReport(
            kind=kind,
            domain=name if kind == "forget" else "",
            rouge_l_recall=Score(score, 20, 0.05),
            answer_probability=Score(score / 2, 20, 0.01),
            choice_accuracy=None if kind == "retain" else Score(0.25, 20, 0.1),
        )
        for (name, kind), score in zip(kinds.items(), scores, strict=True)
    }


def comparisons(sweep: Mapping[str, Mapping[float, Scores]]) -> list[Comparison]:
    """Matched forgetting of firm and firm_base with everything else."""
    settings = [
        setting(merge, gamma, sets(scores), metric="rouge_l_recall")
        for merge, points in sweep.items()
        for gamma, scores in points.items()
    ]
    return compare_all(settings, ["firm", "firm_base"])


def report() -> Report:
    """A report of four merges, one client missing."""
    return Report(
        format_version=FORMAT_VERSION,
        run=RunFacts("trial", 7, "tiny [base]", "ab" * 32, {"clients": 12.5}, {"torch": "2"}),
        clients=(
            ClientReport("brewing-0", "forget", "brewing", "npo", 20, 123456, {"steps": 40}),
            ClientReport("geography", "retain", "geo", "retain_nll", 60, 123456, {"loss": 0.25}),
        ),
        missing=(
            MissingClient(
                "signals-0",
                "forget",
                "signals",
                "died",
                "the data of 'signals-0' in 'signals' is not unlearned",
            ),
        ),
        warnings=("one retain client only",),
        metric="rouge_l_recall",
        base=sets(BASE),
        merges={name: merge_row(name) for name in SWEEP},
        scores={name: sets(SWEEP[name][1.0]) for name in SWEEP},
        sweep=tuple(
            SweepPoint(name, gamma, gamma * 2, sets(scores))
            for name, points in SWEEP.items()
            for gamma, scores in points.items()
        ),
        comparisons=tuple(comparisons(SWEEP)),
        limits=LIMITS,
    )


def merge_row(name: str) -> MergeReportRow:
    """One merge in short; ``firm`` is projected."""
    projected = name == "firm"
    return MergeReportRow(
        method=name.removesuffix("_base"),
        gamma=1.0,
        alpha=0.1,
        epsilon={"geography": 4.1e-5} if projected else None,
        tensors=3,
        norm=1.5,
        raw_norm=2.0 if projected else 1.5,
        constrained_tensors=2 if projected else 0,
        uncertified_tensors=0,
        largest_damage={"geography": 4.1e-5},
        warnings=(),
    )

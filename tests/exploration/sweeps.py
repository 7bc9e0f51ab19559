"""Sweeps of pico summaries, measured by an exam whose answers are known."""

from pathlib import Path

from fedunlearn.aggregation import MergeResult
from fedunlearn.evaluation import SetScores
from fedunlearn.exploration import (
    Ledger,
    Point,
    Provenance,
    QuestionsOrigin,
    parse_epsilons,
    parse_methods,
    parse_numbers,
    plan,
    trace,
)
from fedunlearn.summary import save_summary
from tests.pico import BASE_SHA256, pico_round

DOMAINS = ("biology", "law")
QUESTIONS = QuestionsOrigin(8, 64, {"bio": {"kind": "forget", "domain": "biology", "data": "ab"}})


def stored_round(folder: Path) -> Path:
    """A round's summaries on disk."""
    for summary in pico_round():
        save_summary(summary, folder / summary.meta.client_id)
    return folder


def traced(folder: Path) -> Provenance:
    return trace(folder, base_model="pico", base_model_sha256=BASE_SHA256)


def grid(
    methods: str = "firm,avg", gamma: str = "0.5:2:0.5", epsilon: str = "inf,relative:0.3"
) -> list[Point]:
    return plan(
        parse_methods(methods),
        gammas=parse_numbers("gamma", gamma),
        epsilons=parse_epsilons(epsilon),
        alphas=[0.1],
        subsets=[DOMAINS],
    )


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "points").iterdir()}


class FakeExam:
    """Scores from the update's norm; fails after so many models."""

    def __init__(self, *, patience: int = 10**9) -> None:
        self.asked = self.skipped = 0
        self._patience = patience

    def base_scores(self) -> dict[str, SetScores]:
        return self._answer(0.0)

    def scores(self, merged: MergeResult) -> dict[str, SetScores]:
        return self._answer(sum(float(one.norm()) for one in merged.delta.values()))

    def skip(self) -> None:
        self.skipped += 1

    def _answer(self, size: float) -> dict[str, SetScores]:
        if self.asked >= self._patience:
            raise KeyboardInterrupt
        self.asked += 1
        value = 1 / (1 + size)
        return {"bio": SetScores("bio", "forget", "biology", (value, value / 2), (value,), ())}


def ledger(folder: Path, summaries: Path, *, asking: bool = False) -> Ledger:
    origin = traced(summaries)
    return Ledger(folder, origin.asking(QUESTIONS) if asking else origin)

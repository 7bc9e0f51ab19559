"""Makes and measures the points of a sweep that are not there yet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedunlearn.aggregation import MergeResult, MergeSettings, Multipliers
from fedunlearn.assembly import merge_row
from fedunlearn.evaluation import SetScores
from fedunlearn.exploration.grid import BUDGET_GAMMA, Point
from fedunlearn.exploration.ledger import Ledger, PointRecord
from fedunlearn.progress import Progress
from fedunlearn.summary import ClientSummary
from fedunlearn.sweeping import Exam, MergeBench


@dataclass(frozen=True)
class Tally:
    """How much of a sweep was there already.

    Attributes:
        points: of the plan.
        merged: points made now.
        evaluated: models evaluated now, the base model included.
    """

    points: int
    merged: int
    evaluated: int


def explore(
    points: Sequence[Point],
    summaries: Sequence[ClientSummary],
    ledger: Ledger,
    *,
    exam: Exam | None = None,
    progress: Progress | None = None,
) -> Tally:
    """Make every point that the ledger lacks, and evaluate every one it has no scores of.

    Pooling, Fisher processing and the raw merge are done once for each method and alpha. A
    projection starts from the multipliers of the next lower gamma, read from the ledger where
    that point was there before, so that a sweep that was interrupted ends with the same bits.
    Where no budget binds, the update is the one without a budget bit for bit, and so are its
    scores: they are taken from there.

    Args:
        points: from :func:`~fedunlearn.exploration.grid.plan`, in its order.
        summaries: of one round.
        ledger: where the points are.
        exam: measures models; without one nothing is evaluated.
        progress: called after every point with (points done, points in all).

    Raises:
        SummaryError: a client sent fewer Fisher entries than a point needs; found before any
            point is made.
    """
    desk = _Desk(summaries, ledger, exam)
    desk.check(points)
    if exam is not None and ledger.base() is None:
        ledger.write_base(exam.base_scores())
        desk.evaluated += 1
    before: PointRecord | None = None
    for done, point in enumerate(points, 1):
        record = ledger.find(point)
        if record is None or (exam is not None and record.scores is None):
            desk.merged += record is None
            record = desk.make(point, start=_neighbour(before, point))
            ledger.write(record)
        before = record
        if progress is not None:
            progress(done, len(points))
    return Tally(len(points), desk.merged, desk.evaluated)


def unmeasured(points: Sequence[Point], ledger: Ledger) -> int:
    """Count the evaluations that are missing, the base model's included."""
    records = [ledger.find(point) for point in points]
    missing = sum(record is None or record.scores is None for record in records)
    return missing + (ledger.base() is None)


class _Desk:
    """Makes points; holds what consecutive ones share, and counts."""

    def __init__(
        self, summaries: Sequence[ClientSummary], ledger: Ledger, exam: Exam | None
    ) -> None:
        self._summaries, self._ledger, self._exam = summaries, ledger, exam
        self._domains: tuple[str, ...] | None = None
        self._bench: MergeBench | None = None
        self.merged = self.evaluated = 0

    def check(self, points: Sequence[Point]) -> None:
        """Refuse what cannot be merged, once for each method, alpha and set of domains."""
        seen: set[tuple[object, ...]] = set()
        for point in points:
            chosen = point.merge
            key = (point.domains, chosen.method, repr(chosen.options), chosen.alpha, chosen.eps0)
            if key not in seen:
                seen.add(key)
                MergeBench(self._clients_of(point)).check(chosen)

    def make(self, point: Point, *, start: Multipliers | None) -> PointRecord:
        chosen = _at_budget_gamma(point)
        result = self._bench_of(point).merge(chosen, gamma=point.merge.gamma, start=start)
        tensors = result.report.tensors
        merged = merge_row(result.report)
        return PointRecord(
            point=point,
            merged=merged,
            iterations=sum(one.iterations for one in tensors.values()),
            multipliers={name: dict(one.multipliers) for name, one in tensors.items()},
            scores=self._measure(point, result, changed=merged.constrained_tensors > 0),
        )

    def _measure(
        self, point: Point, result: MergeResult, *, changed: bool
    ) -> dict[str, SetScores] | None:
        """Evaluate an update, unless the projection has not changed it and it is known."""
        if self._exam is None:
            return None
        twin = None if changed else self._ledger.find(point.unprojected)
        if twin is not None and twin.scores is not None:
            self._exam.skip()
            return twin.scores
        self.evaluated += 1
        return self._exam.scores(result)

    def _bench_of(self, point: Point) -> MergeBench:
        if self._bench is None or self._domains != point.domains:
            self._domains, self._bench = point.domains, MergeBench(self._clients_of(point))
        return self._bench

    def _clients_of(self, point: Point) -> list[ClientSummary]:
        return [
            summary
            for summary in self._summaries
            if summary.meta.role == "retain" or summary.meta.domain in point.domains
        ]


def _at_budget_gamma(point: Point) -> MergeSettings:
    """The settings at the gamma at which a relative budget is resolved."""
    return replace(point.merge, gamma=BUDGET_GAMMA)


def _neighbour(before: PointRecord | None, point: Point) -> Multipliers | None:
    """Multipliers of the record before, if it differs from the point in nothing but gamma."""
    if before is None or before.point.domains != point.domains:
        return None
    if _at_budget_gamma(before.point) != _at_budget_gamma(point):
        return None
    return before.multipliers

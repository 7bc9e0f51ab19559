import json
from pathlib import Path

import pytest
import torch

from fedunlearn.aggregation import Merger, merge_summaries
from fedunlearn.errors import SummaryError
from fedunlearn.exploration import PointRecord, explore, parse_domains, plan, read_sweep, unmeasured
from fedunlearn.merging import MERGE_METHODS
from fedunlearn.summary import open_summaries
from tests.exploration.sweeps import DOMAINS, FakeExam, files, grid, ledger, stored_round
from tests.pico import changed, pico_round


@pytest.fixture
def summaries(tmp_path: Path) -> Path:
    return stored_round(tmp_path / "summaries")


def test_every_point_is_the_single_merge(summaries: Path, tmp_path: Path) -> None:
    book = ledger(tmp_path / "s", summaries)
    tally = explore(grid(), open_summaries(summaries), book)
    assert (tally.points, tally.merged, tally.evaluated) == (16, 16, 0)
    for record in read_sweep(tmp_path / "s")[2]:
        merge = record.point.merge
        alone = merge_summaries(pico_round(), merge).report
        if merge.epsilon == float("inf"):
            norm = sum(one.norm**2 for one in alone.tensors.values()) ** 0.5
            assert record.merged.norm == pytest.approx(norm, rel=1e-12)
        assert record.merged.uncertified_tensors == 0


def test_a_relative_budget_is_the_same_number_at_every_gamma(
    summaries: Path, tmp_path: Path
) -> None:
    explore(grid("firm"), open_summaries(summaries), ledger(tmp_path / "s", summaries))
    budgets = [
        record.merged.epsilon["keep-0"]
        for record in read_sweep(tmp_path / "s")[2]
        if record.merged.epsilon
    ]
    once = merge_summaries(pico_round(), grid("firm", "1")[1].merge).report
    assert budgets == [once.epsilon_resolved["keep-0"]] * 4


def test_a_raw_merge_is_computed_once_a_method_and_alpha(
    summaries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = {name: MERGE_METHODS[name].on for name in ("firm", "avg")}
    for name, one in real.items():
        monkeypatch.setattr(
            MERGE_METHODS[name],
            "on",
            lambda self, inputs, n=name, f=one: calls.append((n, inputs.name)) or f(self, inputs),
        )
    explore(grid(), open_summaries(summaries), ledger(tmp_path / "s", summaries))
    assert len(calls) == len(set(calls)) == 4


def test_projections_start_from_their_neighbour(
    summaries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = grid("firm", "0.5:2.5:0.1", "relative:0.3")
    explore(points, open_summaries(summaries), ledger(tmp_path / "warm", summaries))
    monkeypatch.setattr("fedunlearn.exploration.work._neighbour", lambda before, point: None)
    explore(points, open_summaries(summaries), ledger(tmp_path / "cold", summaries))
    warm, cold = (read_sweep(tmp_path / name)[2] for name in ("warm", "cold"))
    assert sum(r.iterations for r in warm) < 0.9 * sum(r.iterations for r in cold)
    for one, other in zip(warm, cold, strict=True):
        assert one.merged.norm == pytest.approx(other.merged.norm, rel=1e-6)


def test_a_start_changes_the_update_within_tolerance() -> None:
    merger, merge = Merger(pico_round()), grid("firm", "2", "relative:0.1")[0].merge
    raw = merger.raw(merge.method, merge.options)
    budget = merger.resolve(raw, merge)
    cold = merger.finish(raw, merge, budget)
    start = {name: one.multipliers for name, one in cold.report.tensors.items()}
    warm = merger.finish(raw, merge, budget, start=start)
    for name, one in warm.report.tensors.items():
        assert one.iterations <= 1
        torch.testing.assert_close(warm.delta[name], cold.delta[name], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("patience", [0, 1, 5])
def test_a_sweep_that_was_stopped_goes_on_and_ends_the_same(
    patience: int, summaries: Path, tmp_path: Path
) -> None:
    clients = open_summaries(summaries)
    whole, exam = ledger(tmp_path / "whole", summaries, asking=True), FakeExam()
    explore(grid(), clients, whole, exam=exam)
    assert exam.asked == 17
    book, tired = ledger(tmp_path / "cut", summaries, asking=True), FakeExam(patience=patience)
    assert unmeasured(grid(), book) == 17
    with pytest.raises(KeyboardInterrupt):
        explore(grid(), clients, book, exam=tired)
    book, rested = ledger(tmp_path / "cut", summaries, asking=True), FakeExam()
    assert unmeasured(grid(), book) == 17 - patience
    tally = explore(grid(), clients, book, exam=rested)
    assert rested.asked == tally.evaluated == 17 - patience
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_nothing_is_done_twice(summaries: Path, tmp_path: Path) -> None:
    clients, exam = open_summaries(summaries), FakeExam()
    explore(grid(), clients, ledger(tmp_path / "s", summaries, asking=True), exam=exam)
    before = files(tmp_path / "s")
    tally = explore(grid(), clients, ledger(tmp_path / "s", summaries, asking=True), exam=exam)
    assert (tally.merged, tally.evaluated, exam.asked) == (0, 0, 17)
    wider = explore(
        grid("firm,avg,sum"), clients, ledger(tmp_path / "s", summaries, asking=True), exam=exam
    )
    assert (wider.points, wider.merged, wider.evaluated + exam.skipped) == (24, 8, 8)
    assert before.items() <= files(tmp_path / "s").items()


def test_points_without_scores_are_evaluated_later(summaries: Path, tmp_path: Path) -> None:
    clients = open_summaries(summaries)
    explore(grid(), clients, ledger(tmp_path / "s", summaries))
    tally = explore(
        grid(), clients, ledger(tmp_path / "s", summaries, asking=True), exam=FakeExam()
    )
    assert (tally.merged, tally.evaluated) == (0, 17)
    again = explore(grid(), clients, ledger(tmp_path / "s", summaries))
    assert again.merged == 0
    provenance, base, records = read_sweep(tmp_path / "s")
    assert provenance.questions is not None
    assert base is not None
    assert all(record.scores for record in records)


def test_scores_are_kept_question_by_question(summaries: Path, tmp_path: Path) -> None:
    book = ledger(tmp_path / "s", summaries, asking=True)
    explore(grid("avg", "1", "inf"), open_summaries(summaries), book, exam=FakeExam())
    (name,) = files(tmp_path / "s")
    stored = json.loads((tmp_path / "s" / "points" / name).read_text())
    assert len(stored["scores"]["bio"]["rouge_l_recall"]) == 2
    record = book.find(grid("avg", "1", "inf")[0])
    assert isinstance(record, PointRecord)
    assert record.scores is not None
    assert record.scores["bio"].rouge_l_recall == tuple(stored["scores"]["bio"]["rouge_l_recall"])


def test_an_update_no_budget_binds_is_not_evaluated_twice(summaries: Path, tmp_path: Path) -> None:
    book, exam = ledger(tmp_path / "s", summaries, asking=True), FakeExam()
    points = grid("firm", "1,2", "1e9,inf")
    tally = explore(points, open_summaries(summaries), book, exam=exam)
    assert (tally.merged, tally.evaluated, exam.asked, exam.skipped) == (4, 3, 3, 2)
    for point in points:
        free, bound = book.find(point.unprojected), book.find(point)
        assert free is not None
        assert bound is not None
        assert free.scores == bound.scores is not None
        assert free.merged.norm == bound.merged.norm


def test_growing_subsets_merge_the_domains_that_joined(summaries: Path, tmp_path: Path) -> None:
    points = plan(
        [("sum", {})],
        gammas=[1.0],
        epsilons=[float("inf")],
        alphas=[0.1],
        subsets=parse_domains("law,biology", DOMAINS),
    )
    explore(points, open_summaries(summaries), ledger(tmp_path / "s", summaries))
    by_count = {len(r.point.domains): r.merged.norm for r in read_sweep(tmp_path / "s")[2]}
    law = [one for one in pico_round() if one.meta.domain not in ("biology",)]
    alone = merge_summaries(law, points[0].merge).report.tensors.values()
    assert by_count[1] == pytest.approx(sum(one.norm**2 for one in alone) ** 0.5)
    assert by_count[1] < by_count[2]


def test_progress_ends_at_its_total(summaries: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    explore(
        grid(),
        open_summaries(summaries),
        ledger(tmp_path / "s", summaries),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(done, 16) for done in range(1, 17)]


def test_fisher_entries_that_were_not_sent_are_missed_before_any_work(
    summaries: Path, tmp_path: Path
) -> None:
    """The grid's own alpha would do; the method at its end needs all entries."""
    sent = [
        changed(s, fisher={**s.meta.fisher, "kept": 0.1}) if s.meta.client_id == "keep-0" else s
        for s in open_summaries(summaries)
    ]
    exam = FakeExam()
    with pytest.raises(SummaryError, match=r"'keep-0'.*this merge method needs all of them"):
        explore(grid("firm,fisher"), sent, ledger(tmp_path / "s", summaries), exam=exam)
    assert not (tmp_path / "s" / "points").exists()
    assert exam.asked == 0

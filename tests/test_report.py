import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fedunlearn.console import TerminalWatcher, show_report
from fedunlearn.errors import InputError
from fedunlearn.evaluation import SetScores
from fedunlearn.plots import write_plot
from fedunlearn.report import PLOT, Report, read_report, write_report
from fedunlearn.report_text import to_markdown, write_markdown
from fedunlearn.scores import Score, leading_metric, setting, summarise
from fedunlearn.tables import clients_table, headline, matched_table, sweep_table
from fedunlearn.verdicts import outcome, verdicts, winner
from tests.reports import BASE, SWEEP, comparisons, report, sets


def test_a_score_states_mean_error_and_n() -> None:
    score = Score.of([0.0, 1.0, 1.0, 0.0])
    assert score == Score(0.5, 4, pytest.approx(0.288675, abs=1e-6))
    assert Score.of([0.25]) == Score(0.25, 1, None)
    assert Score.of([]) is None


def test_scores_per_question_are_summed_up_set_by_set() -> None:
    raw = {"a": SetScores("a", "forget", "bio", (), (), (1.0, 0.0))}
    (one,) = summarise(raw).values()
    assert (one.kind, one.domain, one.rouge_l_recall) == ("forget", "bio", None)
    assert one.choice_accuracy is not None
    assert one.choice_accuracy.mean == 0.5


def test_forgetting_is_matched_on_choices_where_rouge_was_not_measured() -> None:
    measured = sets(BASE)
    assert leading_metric(measured) == "rouge_l_recall"
    measured["signals"] = replace(measured["signals"], rouge_l_recall=None)
    assert leading_metric(measured) == "choice_accuracy"
    reduced = setting("sum", 1.0, measured, metric="choice_accuracy")
    assert reduced.forget == {"brewing": 0.25, "signals": 0.25}
    assert reduced.retain is None


def test_the_verdict_names_a_baseline_that_wins() -> None:
    lines = verdicts(report())
    ties = next(line for line in lines if line.startswith("firm (gamma 1) and ties"))
    assert "gamma 0.5), gap 0.03: retain 0.90 against 0.93" in ties
    assert "ties wins" in ties
    base = next(line for line in lines if line.startswith("firm (gamma 1) and firm_base"))
    assert "firm wins" in base
    assert any("and sum (gamma 1): no match" in line for line in lines)


def test_a_split_and_a_draw_have_no_winner() -> None:
    against = {"firm": {1.0: (0.3, 0.3, 0.9, 0.8)}, "sum": {1.0: (0.3, 0.3, 0.8, 0.9)}}
    (split,) = comparisons(against)
    assert winner(split) is None
    assert outcome(split) == "split: firm on retain, sum on utility"
    (even,) = comparisons({**against, "sum": {1.0: (0.3, 0.3, 0.9, 0.801)}})
    assert outcome(even) == "even"
    (far,) = comparisons({**against, "sum": {1.0: (0.9, 0.3, 0.0, 0.0)}})
    assert outcome(far) == "no match"
    assert winner(far) is None


def test_the_report_survives_its_file(tmp_path: Path) -> None:
    written = report()
    endless = replace(written.merges["firm"], epsilon={"geography": 4e-5, "other": float("inf")})
    written = replace(written, merges={**written.merges, "firm": endless})
    path = write_report(written, tmp_path)
    assert read_report(tmp_path) == written
    assert json.loads(path.read_text())["merges"]["firm"]["epsilon"]["other"] == "inf"
    assert [one.name for one in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "cannot be read"), ("{", "not valid JSON"), ("{}", "format_version")],
)
def test_a_bad_report_file_is_named(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    with pytest.raises(InputError, match=expected):
        read_report(tmp_path)


def test_the_headline_holds_every_group_and_n() -> None:
    table = headline(report())
    assert [column.split("\n")[0] for column in table.columns] == [
        "model",
        "gamma",
        "brewing",
        "signals",
        "retain",
        "utility",
    ]
    assert all("n=20" in column for column in table.columns[2:])
    assert table.rows[0] == ("base", "", *(_cell(BASE, i) for i in range(4)))
    assert table.rows[1] == ("firm", "1", *(_cell(SWEEP["firm"][1.0], i) for i in range(4)))


def _cell(scores: tuple[float, ...], place: int) -> str:
    choice = "   -" if place == 2 else "0.25"
    return f"{scores[place]:.2f} {scores[place] / 2:.2f} {choice}"


def test_many_forget_sets_share_a_column() -> None:
    wide = {f"domain-{i}": sets(BASE)["brewing"] for i in range(5)}
    shown = replace(report(), base={**wide, **sets(BASE)}, scores={}, merges={})
    assert headline(shown).columns[2].startswith("forget (mean)")


def test_the_other_tables_have_a_row_for_everything() -> None:
    shown = report()
    assert len(sweep_table(shown).rows) == len(shown.sweep)
    assert len(matched_table(shown).rows) == len(shown.comparisons)
    assert clients_table(shown).rows[0][-2] == "123,456"


def test_markdown_says_all_that_a_reader_must_know(tmp_path: Path) -> None:
    path = write_markdown(report(), tmp_path, plot=PLOT)
    text = path.read_text(encoding="utf-8")
    for needed in (
        "**signals-0** (forget, signals): died; the data of 'signals-0' in 'signals' is not",
        "one retain client only",
        "At matched forgetting",
        "ties wins",
        "Gamma sweep",
        "0.300 ± 0.050",
        "n=20",
        "123,456",
        "retain_nll",
        "no proof of removal",
        "second-order proxy",
        f"({PLOT})",
    ):
        assert needed in text, needed


def test_markdown_tables_are_well_formed() -> None:
    lines = [line for line in to_markdown(report()).splitlines() if line.startswith("|")]
    assert len(lines) > 30
    widths = {line.count("|") for line in lines if "brewing-0" in line}
    assert widths == {9}


def test_a_report_without_sweep_or_loss_is_still_one() -> None:
    text = to_markdown(replace(report(), sweep=(), comparisons=(), missing=(), warnings=()))
    assert "Gamma sweep" not in text
    assert "matched" not in text
    assert "Warnings" not in text


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_terminal_table_fits(width: int) -> None:
    shown = show(report(), width=width)
    assert "…" not in shown
    assert max(len(line) for line in shown.splitlines() if "n=20" in line) <= width
    assert "Missing: signals-0 (forget, signals)" in shown
    assert "ties wins" in shown.replace("\n", " ")
    assert "runs/x" in shown


def show(shown: Report, *, width: int) -> str:
    stream = io.StringIO()
    show_report(shown, Path("runs/x"), Console(file=stream, width=width, highlight=False))
    return stream.getvalue()


def test_names_are_shown_as_they_are_and_never_as_markup() -> None:
    odd = replace(report(), warnings=("[bold]x[/bold] [/nope]",))
    assert "[bold]x[/bold] [/nope]" in show(odd, width=100)


def test_progress_is_silent_where_stderr_is_no_terminal() -> None:
    stream = io.StringIO()
    watcher = TerminalWatcher(Console(file=stream))
    with watcher.stage("teaching") as progress:
        progress(1, 2)
    assert stream.getvalue() == ""


def test_progress_shows_on_a_terminal_unless_told_to_be_quiet() -> None:
    for quiet in (False, True):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=True, width=100)
        with TerminalWatcher(console, quiet=quiet).stage("teaching") as progress:
            progress(1, 2)
        assert ("teaching" in stream.getvalue()) is not quiet


def test_the_plot_is_a_png_and_says_so_when_there_is_nothing_to_draw(tmp_path: Path) -> None:
    path = write_plot(report(), tmp_path)
    assert path == tmp_path / PLOT
    assert path.read_bytes().startswith(b"\x89PNG")
    only_forget = {name: one for name, one in sets(BASE).items() if one.kind == "forget"}
    assert write_plot(replace(report(), base=only_forget), tmp_path) is None

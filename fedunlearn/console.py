"""Everything a person sees in the terminal: results on stdout, progress and errors on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBars
from rich.table import Table as RichTable

from fedunlearn.arms import UNLEARNED_FOLDER
from fedunlearn.arms.report import ArmsReport
from fedunlearn.arms.text import arms_table
from fedunlearn.progress import Progress
from fedunlearn.report import PLOT, REPORT_JSON, REPORT_MARKDOWN, Report
from fedunlearn.tables import Table, headline
from fedunlearn.verdicts import verdicts

NARROW = 100
"""Width of tables where the output is no terminal and its width unknown."""


def stdout() -> Console:
    """Return the console of results."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=NARROW)


def stderr() -> Console:
    """Return the console of progress, notes and errors."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


class TerminalWatcher:
    """Progress bars on stderr; silent where that is no terminal, or on request."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._shows_bars = console.is_terminal and not quiet
        self._quiet = quiet

    @contextmanager
    def stage(self, title: str) -> Iterator[Progress]:
        """Show a bar while the block runs; it only pulses until the first step."""
        bars = ProgressBars(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._shows_bars,
        )
        with bars:
            task = bars.add_task(title, total=None)

            def progress(done: int, total: int) -> None:
                bars.update(task, completed=done, total=total)

            yield progress

    def note(self, text: str) -> None:
        """Print a line for people."""
        if not self._quiet:
            self._console.print(escape(text))


def show_report(report: Report, run_dir: Path, console: Console) -> None:
    """Print the result of a run: one table, who wins, what to beware of, where the files are."""
    console.print(f"[bold]{escape(report.run.name)}[/bold]: base and merged models")
    show_table(headline(report), console)
    if report.comparisons:
        console.print("At matched forgetting:")
        for line in verdicts(report):
            console.print(f"  {escape(line)}")
    for client in report.missing:
        who = f"{client.client_id} ({client.role}, {client.domain})"
        console.print(f"[bold red]Missing:[/bold red] {escape(who)}: {escape(client.consequence)}")
    for warning in report.warnings:
        console.print(f"[yellow]Warning:[/yellow] {escape(warning)}")
    show_paths(run_dir, [REPORT_MARKDOWN, REPORT_JSON, PLOT, "merged"], console)


def show_arms(report: ArmsReport, run_dir: Path, console: Console) -> None:
    """Print the result of an MPU run: one table, what to beware of, where the files are."""
    console.print(f"[bold]{escape(report.run.name)}[/bold]: before, and after every arm")
    show_table(arms_table(report), console)
    for client in report.missing:
        who = f"{client.client_id} ({client.role}, {client.domain})"
        console.print(f"[bold red]Missing:[/bold red] {escape(who)}: {escape(client.consequence)}")
    for warning in report.warnings:
        console.print(f"[yellow]Warning:[/yellow] {escape(warning)}")
    show_paths(run_dir, [REPORT_MARKDOWN, REPORT_JSON, UNLEARNED_FOLDER], console)


def show_table(table: Table, console: Console) -> None:
    """Print a table, names to the left and numbers to the right."""
    drawn = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for place, column in enumerate(table.columns):
        justify = "left" if place < table.names else "right"
        drawn.add_column(escape(column), justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in table.rows:
        drawn.add_row(*map(escape, row))
    console.print(drawn)


def show_paths(folder: Path, names: list[str], console: Console) -> None:
    """Print where the results are, unbroken, so that they can be copied."""
    found = [name for name in names if (folder / name).exists()]
    console.print(escape(f"{folder}: {', '.join(found)}"), soft_wrap=True)

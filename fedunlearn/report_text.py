"""The report as Markdown, for people: ``report.md``."""

from pathlib import Path

from fedunlearn.fates import fate_lines
from fedunlearn.matching import CLOSE
from fedunlearn.report import REPORT_MARKDOWN, Report
from fedunlearn.scores import METRIC_NAMES
from fedunlearn.tables import (
    as_markdown,
    bullets,
    clients_table,
    headline,
    matched_table,
    merges_table,
    own_data_table,
    scores_of,
    sweep_table,
)
from fedunlearn.verdicts import verdicts


def write_markdown(report: Report, run_dir: Path, *, plot: str | None = None) -> Path:
    """Write ``report.md``; ``plot`` is the name of an image beside it."""
    path, partial = run_dir / REPORT_MARKDOWN, run_dir / f".{REPORT_MARKDOWN}.partial"
    partial.write_text(to_markdown(report, plot=plot), encoding="utf-8")
    return partial.replace(path)


def to_markdown(report: Report, *, plot: str | None = None) -> str:
    """Render the whole report."""
    sections = [
        f"# {report.run.name}",
        _run(report),
        *_missing(report),
        *bullets("Warnings", report.warnings),
        "## What was forgotten and what was kept",
        "A cell holds ROUGE-L recall, answer probability and multiple-choice accuracy (those "
        "that were measured). Forget columns should fall, retain and utility should stay.",
        as_markdown(headline(report)),
        *([f"![forgetting against what is kept]({plot})"] if plot else []),
        *_matched(report),
        *_sweep(report),
        "## Every question set",
        *_sets(report),
        "## Merges",
        as_markdown(merges_table(report)),
        "## Clients",
        as_markdown(clients_table(report)),
        *bullets("Norms unlike those of the others", list(map(str, report.outliers))),
        *bullets("Whose data is unlearned and whose is protected", [*fate_lines(report.fates)]),
        *_own_data(report),
        *bullets("What these numbers cannot show", report.limits),
    ]
    return "\n\n".join(sections) + "\n"


def _run(report: Report) -> str:
    run = report.run
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in run.seconds.items())
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    facts = [
        f"Base model `{run.base_model}`, sha256 `{run.base_model_sha256[:16]}`, seed {run.seed}",
        f"{len(report.clients)} clients in the merge",
        *([f"Time: {times}"] if times else []),
        f"With {versions}",
    ]
    return "\n".join(f"- {fact}" for fact in facts)


def _missing(report: Report) -> list[str]:
    return bullets(
        "Clients that are not part of this result",
        [
            f"**{m.client_id}** ({m.role}, {m.domain}): {m.reason}; {m.consequence}"
            for m in report.missing
        ],
    )


def _matched(report: Report) -> list[str]:
    if not report.comparisons:
        return []
    return [
        "## At matched forgetting",
        f"Each setting of A beside the setting of B that forgets most alike in "
        f"{METRIC_NAMES[report.metric]}: the smallest largest gap over the forget sets, ties by "
        f"the sum of gaps, then the lower gamma. What is kept is never looked at when matching. "
        f"Gaps above {CLOSE} are no match.",
        "\n".join(f"- {line}" for line in verdicts(report)),
        as_markdown(matched_table(report)),
    ]


def _sweep(report: Report) -> list[str]:
    if not report.sweep:
        return []
    return [
        "## Gamma sweep",
        f"{METRIC_NAMES[report.metric]}; no client ran again.",
        as_markdown(sweep_table(report)),
    ]


def _own_data(report: Report) -> list[str]:
    if not report.own_data:
        return []
    merge = next((one.scores.merge for one in report.own_data if one.scores), "")
    return [
        "## On the clients' own data",
        f"Means ± standard errors that the clients computed on their own records, before and "
        f"after the merge {merge}; single records and texts stayed with them.",
        as_markdown(own_data_table(report)),
    ]


def _sets(report: Report) -> list[str]:
    parts = []
    for metric, name in METRIC_NAMES.items():
        table = scores_of(report, metric)
        if len(table.columns) > 1:
            parts += [f"{name[0].upper()}{name[1:]}, mean ± standard error:", as_markdown(table)]
    return parts

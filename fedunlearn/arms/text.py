"""An MPU run's report for people: the table of arms, and ``report.md``."""

from pathlib import Path
from statistics import fmean
from typing import Any

from fedunlearn.arms.files import ArmOutcome
from fedunlearn.arms.report import ArmsReport
from fedunlearn.fates import fate_lines
from fedunlearn.report import REPORT_MARKDOWN
from fedunlearn.tables import Table, as_markdown, bullets, models_table


def arms_table(report: ArmsReport) -> Table:
    """The model before and every arm: scheme, m and kappa, and the scores."""
    labels = {name: _labels(outcome) for name, outcome in report.arms.items()}
    return models_table(report.base, report.scores, heads=("m", "kappa"), labels=labels)


def _labels(outcome: ArmOutcome) -> tuple[str, ...]:
    copies = outcome.settings["copies"]
    return {
        "clean": ("", ""),
        "noised": ("", f"{copies['kappa']:g}"),
        "mpu": (str(copies["m"]), f"{copies['kappa']:g}"),
    }[outcome.scheme]


def noise_table(report: ArmsReport) -> Table:
    """What every arm published and how noisy it was."""
    rows = [
        (
            name,
            outcome.scheme,
            str(outcome.settings["forget"]["objective"]["name"]),
            str(outcome.settings["rounds"]),
            str(outcome.settings["forget"]["epochs"]),
            _mean_of(outcome, "sigma"),
            _share(outcome),
            f"{outcome.norm:.3g}",
            f"{outcome.bytes_published:,}",
            f"{outcome.bytes_uploaded:,}",
            f"{outcome.seconds:.1f}",
        )
        for name, outcome in report.arms.items()
    ]
    heads = ("arm", "scheme", "objective", "R", "E", "mean sigma", "unchanged", "norm of update")
    return Table((*heads, "bytes a copy", "bytes an update", "seconds"), tuple(rows), names=3)


def _mean_of(outcome: ArmOutcome, key: str) -> str:
    """Mean over copies and blocks; empty where there is no noise to speak of."""
    values = [value for copy in outcome.copies for value in copy.get(key, {}).values()]
    return f"{fmean(values):.2g}" if values else ""


def _share(outcome: ArmOutcome) -> str:
    shares: list[Any] = [copy["unchanged"] for copy in outcome.copies if "unchanged" in copy]
    return f"{100 * max(shares):.2g} %" if shares else ""


def write_arms_markdown(report: ArmsReport, run_dir: Path) -> Path:
    """Write ``report.md``."""
    path, partial = run_dir / REPORT_MARKDOWN, run_dir / f".{REPORT_MARKDOWN}.partial"
    partial.write_text(arms_markdown(report), encoding="utf-8")
    return partial.replace(path)


def arms_markdown(report: ArmsReport) -> str:
    """Render the whole report."""
    run = report.run
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    checks = [
        outcome.self_check for outcome in report.arms.values() if outcome.self_check is not None
    ]
    facts = [
        f"Base model `{run.base_model}`, sha256 `{run.base_model_sha256[:16]}`, seed {run.seed}",
        f"With {versions}",
    ]
    if checks:
        facts.append(
            f"Self-check: logits of a copy without noise differ by {max(checks):.1e} at most"
        )
    missing = [f"**{m.client_id}** ({m.role}, {m.domain}): {m.reason}" for m in report.missing]
    sections = [
        f"# {run.name}",
        "\n".join(f"- {fact}" for fact in facts),
        *bullets("Clients that are not part of every result", missing),
        *bullets("Warnings", report.warnings),
        "## What was forgotten and what was kept",
        "A cell holds ROUGE-L recall, answer probability and multiple-choice accuracy (those "
        "that were measured). Forget columns should fall, retain and utility should stay.",
        as_markdown(arms_table(report)),
        "## How",
        "Mean sigma: standard deviation of the noise before alpha, mean over blocks. Unchanged: "
        "share of entries that rounding to the publishing precision leaves without noise.",
        as_markdown(noise_table(report)),
        *bullets("Norms unlike those of the others", list(map(str, report.outliers))),
        *bullets("Whose data is unlearned and whose is protected", [*fate_lines(report.fates)]),
        *bullets("What these numbers cannot show", report.limits),
    ]
    return "\n\n".join(sections) + "\n"

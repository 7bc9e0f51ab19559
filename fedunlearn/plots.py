"""The picture of a sweep: what is forgotten against what is kept."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedunlearn.report import PLOT, Report
from fedunlearn.scores import METRIC_NAMES, SetReport, group_mean

MARKERS = "osD^vP*X"


def write_plot(report: Report, run_dir: Path) -> Path | None:
    """Draw forgetting against utility and against retain, a line per merge over gamma.

    The file appears whole or not at all.

    Returns:
        The PNG's path; ``None`` when nothing was forgotten or nothing kept was measured.
    """
    kinds = [kind for kind in ("utility", "retain") if _kept(report.base, kind, report) is not None]
    if not kinds or group_mean(report.base, "forget", report.metric) is None:
        return None
    figure, axes = panels(len(kinds))
    for axis, kind in zip(axes, kinds, strict=True):
        _draw(axis, report, kind)
    axes[0].legend(fontsize=8, loc="lower right")
    return save(figure, run_dir / PLOT)


def panels(count: int) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure of some panels in a row."""
    figure = Figure(figsize=(5.2 * count, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, whole or not at all; return its path."""
    partial = path.with_name(f".{path.name}.partial")
    figure.savefig(partial, format="png", dpi=150, metadata={"Software": "fedunlearn"})
    return partial.replace(path)


def _draw(axis: Axes, report: Report, kind: str) -> None:
    for number, merge in enumerate(report.merges):
        points = _points(report, merge, kind)
        marker = MARKERS[number % len(MARKERS)]
        axis.plot(*zip(*points, strict=True), marker=marker, markersize=4, label=merge, alpha=0.85)
    base_x, base_y = _point(report.base, kind, report)
    axis.plot([base_x], [base_y], "k*", markersize=12, label="base")
    name = METRIC_NAMES[report.metric]
    axis.set_xlabel(f"forget sets: mean {name} (left is more forgotten)")
    axis.set_ylabel(f"{kind} (up is more kept)")
    axis.set_xlim(-0.03, 1.03)
    axis.set_ylim(-0.03, 1.03)
    axis.grid(alpha=0.3)


def _points(report: Report, merge: str, kind: str) -> list[tuple[float, float]]:
    """Points of a merge by rising gamma; its configured one alone where it was not swept."""
    swept = [_point(p.sets, kind, report) for p in report.sweep if p.merge == merge]
    return swept or [_point(report.scores[merge], kind, report)]


def _point(sets: dict[str, SetReport], kind: str, report: Report) -> tuple[float, float]:
    forget = group_mean(sets, "forget", report.metric)
    kept = _kept(sets, kind, report)
    return (float("nan") if forget is None else forget, float("nan") if kept is None else kept)


def _kept(sets: dict[str, SetReport], kind: str, report: Report) -> float | None:
    mean = group_mean(sets, kind, report.metric)
    return group_mean(sets, kind, "choice_accuracy") if mean is None else mean

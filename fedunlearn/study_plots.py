"""The pictures of a study: frontier, envelopes, norm against gamma and against domains."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedunlearn.plots import MARKERS, panels, save
from fedunlearn.scores import METRIC_NAMES
from fedunlearn.study.envelope import steps
from fedunlearn.study.schema import Kept, Standing, Study, StudyPoint

FILES = {
    "frontier": "frontier.png",
    "envelopes": "envelopes.png",
    "norms": "norm_vs_gamma.png",
    "domains": "norm_vs_domains.png",
}


def write_study_plots(study: Study, folder: Path) -> dict[str, str]:
    """Draw what there is to draw.

    Returns:
        Kind to the name of its PNG in ``folder``.
    """
    drawers: Mapping[str, Callable[[Study, Path], bool]] = {
        "frontier": _frontier,
        "envelopes": _envelopes,
        "norms": _norms,
        "domains": _domains,
    }
    return {
        kind: FILES[kind] for kind, draw in drawers.items() if draw(study, folder / FILES[kind])
    }


def _frontier(study: Study, path: Path) -> bool:
    kinds = _kinds(study)
    if not kinds:
        return False
    figure, axes = panels(len(kinds))
    for axis, kind in zip(axes, kinds, strict=True):
        standings = [one for one in study.standings if one.kept_kind == kind]
        for number, variant in enumerate(study.variants):
            own = [one for one in standings if one.variant == variant]
            xs, ys = [one.forget for one in own], [one.kept for one in own]
            axis.plot(xs, ys, marker=_marker(number), markersize=4, label=variant, alpha=0.85)
        _encircle(axis, standings)
        _label(axis, f"forget sets: mean {_metric(study)} (left is more forgotten)", f"{kind} kept")
    _legend(axes[0])
    save(figure, path)
    return True


def _encircle(axis: Axes, standings: list[Standing]) -> None:
    chosen = [one for one in standings if one.on_frontier]
    axis.plot(
        [one.forget for one in chosen],
        [one.kept for one in chosen],
        "o",
        markersize=10,
        markerfacecolor="none",
        markeredgecolor="black",
        label="on the frontier",
    )


def _envelopes(study: Study, path: Path) -> bool:
    names = list(dict.fromkeys(gap.forget_set for gap in study.envelopes))
    if not names:
        return False
    kind = _kinds(study)[-1]  # utility, where it was measured
    kept = {(s.variant, s.gamma): s.kept for s in study.standings if s.kept_kind == kind}
    figure, axes = panels(len(names))
    for axis, name in zip(axes, names, strict=True):
        for variant in study.variants:
            points = [p for p in study.of(variant) if (variant, p.gamma) in kept]
            ceilings, heights = steps(
                np.array([_forget(point, name, study) for point in points]),
                np.array([kept[variant, point.gamma] for point in points]),
            )
            axis.step(ceilings, heights, where="post", marker=".", label=variant, alpha=0.85)
        _label(axis, f"ceiling on {name} ({_metric(study)})", f"best {kind} kept under it")
    _legend(axes[0])
    save(figure, path)
    return True


def _norms(study: Study, path: Path) -> bool:
    if not study.whole:
        return False
    figure, (axis,) = panels(1)
    for number, variant in enumerate(study.variants):
        points = study.of(variant)
        xs, ys = [point.gamma for point in points], [point.norm for point in points]
        axis.plot(xs, ys, marker=_marker(number), markersize=4, label=variant, alpha=0.85)
    _label(axis, "gamma", "norm of the update")
    _legend(axis)
    save(figure, path)
    return True


def _domains(study: Study, path: Path) -> bool:
    if not study.growing:
        return False
    figure, (axis,) = panels(1)
    lines: dict[tuple[str, float], list[StudyPoint]] = {}
    for point in study.growing:
        lines.setdefault((point.variant, point.gamma), []).append(point)
    for number, ((variant, gamma), points) in enumerate(lines.items()):
        xs, ys = [len(point.domains) for point in points], [point.norm for point in points]
        name = f"{variant} (gamma {gamma:g})"
        axis.plot(xs, ys, marker=_marker(number), markersize=4, label=name, alpha=0.85)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axis, "forget domains", "norm of the update")
    _legend(axis)
    save(figure, path)
    return True


def _forget(point: StudyPoint, name: str, study: Study) -> float:
    found = getattr(point.sets[name], str(study.metric)) if point.sets else None
    return float("nan") if found is None else float(found.mean)


def _kinds(study: Study) -> list[Kept]:
    return list(dict.fromkeys(one.kept_kind for one in study.standings))


def _metric(study: Study) -> str:
    return METRIC_NAMES[study.metric] if study.metric else ""


def _marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def _label(axis: Axes, horizontal: str, vertical: str) -> None:
    axis.set_xlabel(horizontal)
    axis.set_ylabel(vertical)
    axis.grid(alpha=0.3)


def _legend(axis: Axes) -> None:
    axis.legend(fontsize=7)

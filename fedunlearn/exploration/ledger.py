"""A sweep on disk: ``sweep.json``, ``base.json`` and one small file a point, each written whole.

A point is in the folder or it is not: files appear under their name only when complete, so a
sweep may be killed at any moment and goes on from what is there.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from fedunlearn.errors import InputError
from fedunlearn.evaluation import SetScores
from fedunlearn.exploration.grid import Point
from fedunlearn.exploration.provenance import FORMAT_VERSION, Provenance
from fedunlearn.report import MergeReportRow
from fedunlearn.storage import claim_folder, read_json, replace_json

T = TypeVar("T")
SWEEP_FILE, BASE_FILE, POINTS_FOLDER = "sweep.json", "base.json", "points"


@dataclass(frozen=True)
class PointRecord:
    """The content of a point's file.

    Attributes:
        point: which merge.
        merged: how the update was made, summed up over its tensors.
        iterations: of the projection's solver, over all tensors.
        multipliers: base parameter name to retain client's id to dual variable.
        scores: question set to its scores, question by question; ``None`` if not evaluated.
    """

    point: Point
    merged: MergeReportRow
    iterations: int
    multipliers: dict[str, dict[str, float]]
    scores: dict[str, SetScores] | None = None


@dataclass(frozen=True)
class _BaseRecord:
    """The content of ``base.json``: the base model's scores, question by question."""

    scores: dict[str, SetScores]


class Ledger:
    """The folder of one sweep.

    Args:
        folder: new, empty, or an earlier sweep from the same inputs, which is continued.
        provenance: the inputs now.

    Raises:
        InputError: the folder is something else, or a sweep from other inputs; all that has
            changed is named.
    """

    def __init__(self, folder: Path, provenance: Provenance) -> None:
        self._folder = folder
        self._points = folder / POINTS_FOLDER
        before = _open(folder, provenance)
        if before is not None and provenance.questions is None:
            provenance = replace(provenance, questions=before.questions)
        self._unsigned = None if provenance == before else provenance

    def base(self) -> dict[str, SetScores] | None:
        """Scores of the base model, if it was evaluated."""
        path = self._folder / BASE_FILE
        return _read(path, _BaseRecord).scores if path.exists() else None

    def write_base(self, scores: Mapping[str, SetScores]) -> None:
        """Keep the base model's scores."""
        self._sign()
        replace_json(self._folder / BASE_FILE, asdict(_BaseRecord(dict(scores))))

    def find(self, point: Point) -> PointRecord | None:
        """What is known of a point, if anything.

        Raises:
            InputError: its file is damaged.
        """
        path = self._points / point.file_name
        return _read(path, PointRecord) if path.exists() else None

    def write(self, record: PointRecord) -> None:
        """Keep a point; an earlier record of it is replaced."""
        self._sign()
        replace_json(self._points / record.point.file_name, asdict(record))

    def _sign(self) -> None:
        """Say what the sweep is made from, once there is something to keep."""
        if self._unsigned is not None:
            self._points.mkdir(parents=True, exist_ok=True)
            replace_json(self._folder / SWEEP_FILE, asdict(self._unsigned))
            self._unsigned = None


def read_sweep(folder: Path) -> tuple[Provenance, dict[str, SetScores] | None, list[PointRecord]]:
    """Read a whole sweep.

    Returns:
        What it was made from, the base model's scores, and every point: FIRM's first, then by
        method, options, alpha, falling budget, domains and rising gamma.

    Raises:
        InputError: no sweep is there, or a file of it is damaged.
    """
    provenance = _read(folder / SWEEP_FILE, Provenance)
    base = folder / BASE_FILE
    scores = _read(base, _BaseRecord).scores if base.exists() else None
    paths = sorted((folder / POINTS_FOLDER).glob("[!.]*.json"))
    return provenance, scores, sorted((_read(path, PointRecord) for path in paths), key=_order)


def _order(record: PointRecord) -> tuple[object, ...]:
    merge = record.point.merge
    budget = merge.epsilon if isinstance(merge.epsilon, float) else 0.0
    variant = record.point.variant
    known = (merge.method != "firm", merge.method, str(sorted(merge.options.items())), merge.alpha)
    return (*known, -budget, variant, len(record.point.domains), merge.gamma)


def _open(folder: Path, provenance: Provenance) -> Provenance | None:
    """Return what an earlier sweep in the folder was made from, once it may go on."""
    if not (folder / SWEEP_FILE).exists():
        with claim_folder(folder):
            return None
    before = _read(folder / SWEEP_FILE, Provenance)
    if changed := before.differences(provenance):
        listed = "".join(f"\n  {line}" for line in changed)
        raise InputError(
            f"the sweep in {folder} was made from other inputs and cannot go on; "
            f"name another folder with --out:{listed}"
        )
    return before


def _read(path: Path, kind: type[T]) -> T:
    raw = read_json(path)
    version = raw.get("format_version")
    if kind is Provenance and version != FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {version!r}, this version of fedunlearn reads "
            f"{FORMAT_VERSION}"
        )
    try:
        return TypeAdapter(kind).validate_python(raw)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path} is damaged or not of this version: {where}: {first['msg']}; delete the file "
            "to have it made again"
        ) from None

"""What an export gives back, and writes beside the files as ``export.json``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedunlearn.models.expert import Expert

EXPORT_FILE = "export.json"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class ExportedTensor:
    """How much of one weight's update the export holds.

    Attributes:
        norm: Frobenius norm of the update; in a model, of expert and update together.
        relative_error: norm of what is lost over ``norm``; 0 for a zero update.
        rank: of the adapter's factors, the expert's included; ``None`` in a model.
    """

    norm: float
    relative_error: float
    rank: int | None = None


@dataclass(frozen=True)
class ExportReport:
    """The content of ``export.json``.

    Attributes:
        format_version: of this file.
        kind: ``model`` or ``adapter``.
        base_model: the backbone to which the export is relative.
        expert: name of the expert adapter that the export includes; empty: there was none.
        relative_error: over all weights together.
        tensors: base parameter name to its part.
    """

    format_version: int
    kind: Literal["model", "adapter"]
    base_model: str
    expert: str
    relative_error: float
    tensors: dict[str, ExportedTensor]


def summarise(
    kind: Literal["model", "adapter"],
    base_model: str,
    tensors: Mapping[str, ExportedTensor],
    *,
    expert: Expert | None = None,
) -> ExportReport:
    """Add the error over all weights: ``sqrt(sum lost^2 / sum norm^2)``."""
    norm = math.hypot(*(one.norm for one in tensors.values()))
    lost = math.hypot(*(one.norm * one.relative_error for one in tensors.values()))
    total = lost / norm if norm > 0 else 0.0
    name = expert.name if expert else ""
    return ExportReport(FORMAT_VERSION, kind, base_model, name, total, dict(tensors))

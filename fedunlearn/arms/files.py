"""The result of an arm on disk: ``unlearned/<name>/delta.safetensors`` and ``unlearned.json``."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from torch import Tensor

from fedunlearn.copies.schemes import Scheme
from fedunlearn.errors import InputError
from fedunlearn.registry import nearest
from fedunlearn.settings import settings
from fedunlearn.storage import TensorFile, atomic_folder, read_typed, write_json, write_tensors
from fedunlearn.tensors.sums import square_sum

FORMAT_VERSION = 1
UNLEARNED_FOLDER = "unlearned"
DELTA_FILE = "delta.safetensors"
OUTCOME_FILE = "unlearned.json"


@settings
class ArmOutcome:
    """What became of one arm; the content of ``unlearned.json``.

    Attributes:
        format_version: of the folder.
        name: of the arm.
        scheme: ``mpu`` or a baseline.
        base_model: name of the model it started from.
        base_model_sha256: hash of its weights.
        settings: of the arm, in full.
        secret: where the secrets came from: ``os``, or a ``seed`` that makes the run repeatable
            and lets whoever knows it undo every copy.
        self_check: largest difference of logits between the model and a copy without noise;
            ``None`` for a baseline, which has no symmetry.
        notes: what does not hold for this model.
        copies: of every copy in the order of publication: round, digest, and for MPU the noise.
        norm: Euclidean norm of the whole update.
        clients: id to weight of who took part in the last round.
        bytes_published: of one copy.
        bytes_uploaded: of one update, the largest.
        seconds: that the rounds took.
    """

    format_version: int = FORMAT_VERSION
    name: str
    scheme: Scheme
    base_model: str
    base_model_sha256: str
    settings: dict[str, Any]
    secret: str
    self_check: float | None
    notes: tuple[str, ...] = ()
    copies: tuple[dict[str, Any], ...] = ()
    norm: float
    clients: dict[str, float]
    bytes_published: int
    bytes_uploaded: int
    seconds: float


_SCHEMA = TypeAdapter(ArmOutcome)


def update_norm(delta: Mapping[str, Tensor]) -> float:
    """Euclidean norm over all tensors, accumulated in float64."""
    return math.sqrt(math.fsum(square_sum(tensor) for tensor in delta.values()))


def write_unlearned(folder: Path, outcome: ArmOutcome, delta: Mapping[str, Tensor]) -> None:
    """Write an arm's result as ``folder``, whole or not at all; an earlier one is replaced.

    Args:
        folder: where.
        outcome: what became of it.
        delta: base parameter name to what was added to it, float32; tied ones once.
    """
    with atomic_folder(folder, marker=OUTCOME_FILE) as partial:
        write_tensors(partial / DELTA_FILE, delta)
        write_json(partial / OUTCOME_FILE, _SCHEMA.dump_python(outcome, mode="json"))


def read_unlearned(run_dir: Path, name: str) -> tuple[ArmOutcome, Mapping[str, Tensor]]:
    """Read an arm's result; its tensors lie in the mapped file.

    Raises:
        InputError: there is none of that name, or it is damaged.
    """
    folder = run_dir / UNLEARNED_FOLDER / name
    if not folder.is_dir():
        known = (
            sorted(one.name for one in folder.parent.iterdir()) if folder.parent.is_dir() else []
        )
        raise InputError(f"{folder.parent} has no {name!r}{nearest(name, known)}")
    return read_typed(folder / OUTCOME_FILE, _SCHEMA), TensorFile(folder / DELTA_FILE)


def is_unlearned(run_dir: Path, name: str) -> bool:
    """Whether the arm's result is there."""
    return (run_dir / UNLEARNED_FOLDER / name / OUTCOME_FILE).is_file()

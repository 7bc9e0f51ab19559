"""What an MPU run found, as one typed object: its ``report.json`` is this, field for field."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fedunlearn.arms.files import ArmOutcome
from fedunlearn.outliers import Outlier
from fedunlearn.report import REPORT_JSON, Fate, MissingClient, RunFacts
from fedunlearn.scores import Metric, SetReport
from fedunlearn.storage import read_typed, replace_json

FORMAT_VERSION = 1

LIMITS = (
    "Noise that sums to zero cancels for anyone who can align the copies, and copies of one round "
    "are nearly equal: matching rows undoes a permutation, and a least-squares rotation most of "
    "the rest. Clients that pool their copies, or one that sees several, learn more than the noise "
    "level suggests. docs/MPU.md says what each part hides.",
    "A ROUGE-L recall of zero is no proof of removal: knowledge may be left that other prompts, "
    "sampling, or a few steps of fine-tuning bring back.",
    "AdamW does not commute with rotations: with it, copies take slightly different steps even "
    "without noise. docs/MPU.md says by how much.",
)


@dataclass(frozen=True)
class ArmsReport:
    """The result of a run of MPU.

    Attributes:
        format_version: of the file.
        method: ``mpu``.
        run: what was run.
        missing: clients that were asked and are not part of every result.
        warnings: what the run had to say.
        metric: the one that forgetting is read off.
        base: scores of the model before.
        arms: name to what became of the arm.
        scores: name to the scores of its result.
        limits: what these numbers cannot show.
        fates: whose data is unlearned and whose is protected, by client.
        outliers: norms of updates that are unlike the others'.
    """

    format_version: int
    method: str
    run: RunFacts
    missing: tuple[MissingClient, ...]
    warnings: tuple[str, ...]
    metric: Metric
    base: dict[str, SetReport]
    arms: dict[str, ArmOutcome]
    scores: dict[str, dict[str, SetReport]]
    limits: tuple[str, ...]
    fates: tuple[Fate, ...] = ()
    outliers: tuple[Outlier, ...] = ()


_SCHEMA = TypeAdapter(ArmsReport)


def write_arms_report(report: ArmsReport, run_dir: Path) -> Path:
    """Write ``report.json``."""
    path = run_dir / REPORT_JSON
    replace_json(path, _SCHEMA.dump_python(report, mode="json"))
    return path


def read_arms_report(path: Path) -> ArmsReport:
    """Read a ``report.json`` back.

    Raises:
        InputError: it is missing, damaged, or of another method or version.
    """
    return read_typed(path, _SCHEMA)

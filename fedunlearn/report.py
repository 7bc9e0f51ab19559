"""What a run found, as one typed object: ``report.json`` is this, field for field.

``docs/report.md`` explains every field to readers of the file.
"""

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from fedunlearn.evaluation.own_data import ClientEvaluation
from fedunlearn.matching import Comparison
from fedunlearn.outliers import Outlier
from fedunlearn.scores import Metric, SetReport
from fedunlearn.storage import read_typed, replace_json

FORMAT_VERSION = 1
REPORT_JSON, REPORT_MARKDOWN = "report.json", "report.md"
PLOT = "forgetting_vs_kept.png"

LIMITS = (
    "The Fisher diagonal is a local, second-order proxy for damage: a budget on it bounds the "
    "proxy, not the loss of retained skill. Read what is kept off the measured scores.",
    "A ROUGE-L recall of zero is no proof of removal: knowledge may be left that other prompts, "
    "sampling, or a few steps of fine-tuning bring back.",
    "Gamma, epsilon and the clients' training may have been chosen by looking at forget and "
    "retain scores; only the utility sets are meant to be kept out of that.",
)


@dataclass(frozen=True)
class RunFacts:
    """What was run.

    Attributes:
        name: from the config.
        seed: from the config.
        base_model: name of the base model.
        base_model_sha256: hash of its weights.
        seconds: what the events' log says each part took.
        versions: of this package and what it stands on.
    """

    name: str
    seed: int
    base_model: str
    base_model_sha256: str
    seconds: dict[str, float]
    versions: dict[str, str]


@dataclass(frozen=True)
class ClientReport:
    """A client whose summary is part of the merge.

    Attributes:
        client_id: the client's id.
        role: ``forget`` or ``retain``.
        domain: what its data is about.
        objective: what it optimised.
        num_examples: records it trained on.
        bytes_uploaded: of the arrays it sent, LoRA factors and Fisher, without headers.
        bytes_downloaded: of what it was sent: questions and instructions.
        training: what its summary says of the training, seconds and peak memory included.
        fisher: likewise of the Fisher estimate.
    """

    client_id: str
    role: str
    domain: str
    objective: str
    num_examples: int
    bytes_uploaded: int
    training: dict[str, object]
    fisher: dict[str, object] = field(default_factory=dict)
    bytes_downloaded: int = 0


@dataclass(frozen=True)
class MissingClient:
    """A client that was asked and is not part of the merge."""

    client_id: str
    role: str
    domain: str
    reason: str
    consequence: str


@dataclass(frozen=True)
class Fate:
    """What became of a client's data.

    Attributes:
        client_id, role, domain: whose.
        fate: ``unlearned``, ``not unlearned``, ``protected`` or ``not protected``.
        detail: by what, or why not.
    """

    client_id: str
    role: str
    domain: str
    fate: str
    detail: str


@dataclass(frozen=True)
class MergeReportRow:
    """One merge in short; ``merged/<name>/merge.json`` has it tensor by tensor.

    Attributes:
        method: the merge method.
        gamma: scale of the raw merge.
        alpha: fraction of Fisher entries kept.
        epsilon: budget per retain client, resolved; ``None`` without a projection.
        tensors: number of adapted weights.
        norm: Euclidean norm of the whole update.
        raw_norm: the same before the projection.
        constrained_tensors: tensors on which some multiplier is positive.
        uncertified_tensors: tensors whose update is not certified as the nearest within budget.
        largest_damage: Fisher damage of the update, the largest over tensors, per retain client.
        warnings: what the merge had to say.
    """

    method: str
    gamma: float
    alpha: float
    epsilon: dict[str, float] | None
    tensors: int
    norm: float
    raw_norm: float
    constrained_tensors: int
    uncertified_tensors: int
    largest_damage: dict[str, float]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class SweepPoint:
    """A merge at another gamma, from the same summaries."""

    merge: str
    gamma: float
    norm: float
    sets: dict[str, SetReport]


@dataclass(frozen=True)
class Report:
    """Everything ``report.json`` holds.

    Attributes:
        format_version: of this layout.
        run: what was run.
        clients: who is in the merge, by id.
        missing: who is not, though asked.
        warnings: what a reader must know before the numbers.
        metric: the one that forgetting is matched on.
        base: set name to scores of the base model.
        merges: name to facts, in the config's order.
        scores: merge name to set name to scores, at the configured gamma.
        sweep: by merge, then gamma; includes the configured gamma.
        comparisons: matched forgetting; see :mod:`fedunlearn.matching`.
        limits: what the numbers cannot show.
        fates: whose data is unlearned and whose is protected, by client.
        outliers: norms of what clients sent that are unlike the others'.
        own_data: what clients say of one merge on their own data; empty where they were not
            asked.
    """

    format_version: int
    run: RunFacts
    clients: tuple[ClientReport, ...]
    missing: tuple[MissingClient, ...]
    warnings: tuple[str, ...]
    metric: Metric
    base: dict[str, SetReport]
    merges: dict[str, MergeReportRow]
    scores: dict[str, dict[str, SetReport]]
    sweep: tuple[SweepPoint, ...]
    comparisons: tuple[Comparison, ...]
    limits: tuple[str, ...]
    fates: tuple[Fate, ...] = ()
    outliers: tuple[Outlier, ...] = ()
    own_data: tuple[ClientEvaluation, ...] = ()


_ADAPTER = TypeAdapter(Report)


def write_report(report: Report, run_dir: Path) -> Path:
    """Write ``report.json`` whole or not at all; return its path."""
    path = run_dir / REPORT_JSON
    replace_json(path, _ADAPTER.dump_python(report, mode="json"))
    return path


def read_report(run_dir: Path) -> Report:
    """Read a run's report.

    Raises:
        InputError: there is none, or it is not one of this version.
    """
    return read_typed(run_dir / REPORT_JSON, _ADAPTER)

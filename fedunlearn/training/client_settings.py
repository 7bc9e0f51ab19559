"""Who a client is, what it is told, and whether the two fit together."""

from collections.abc import Iterator

from fedunlearn.data.reading import DataSpec
from fedunlearn.errors import InputError
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.objectives import OBJECTIVES, Objective
from fedunlearn.registry import nearest
from fedunlearn.roles import Role
from fedunlearn.settings import settings
from fedunlearn.training.fisher_pass import FisherSettings
from fedunlearn.training.loop import TrainingSettings


@settings
class ClientIdentity:
    """What a node knows of itself; never told by the server.

    Attributes:
        id: unique in the federation; letters, digits, ``.``, ``_`` and ``-``.
        role: whether the data must go or stay.
        domain: what the data is about; forget clients of one domain are pooled.
        data: path of a file, or a data source and its settings; read on the node only.
        retain_data: records that a forget client keeps, for objectives with a retain term;
            likewise.
        refusals: text file of preferred answers, one a line, for objectives that need them, read
            on the node only. ``None`` takes those of the package.
    """

    id: str
    role: Role
    domain: str
    data: DataSpec
    retain_data: DataSpec | None = None
    refusals: str | None = None


@settings
class ClientInstructions:
    """What the server tells every client; each takes the part of its own role.

    Attributes:
        seed: of the whole run; clients derive their own from it.
        server_round: counts from 1.
        lora: the adapter, the same for all clients.
        forget: training of forget clients.
        retain: training of retain clients.
        fisher: the Fisher estimate.
        fisher_kept: fraction of each Fisher tensor's entries to send, the largest, in (0, 1]; the
            others are sent as zeros, which cost next to nothing. At least the alpha of every
            merge to come (eq. 3), which then is the same as with all entries. A client that is
            pooled with others sends all: the largest entries of a mean may be no client's.
    """

    seed: int
    server_round: int = 1
    lora: LoraSettings
    forget: TrainingSettings
    retain: TrainingSettings
    fisher: FisherSettings
    fisher_kept: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.fisher_kept <= 1.0:
            raise ValueError(f"fisher_kept must be in (0, 1], got {self.fisher_kept}")

    def training(self, role: Role) -> TrainingSettings:
        """The settings of one role."""
        return self.forget if role == "forget" else self.retain


def build_objective(chosen: TrainingSettings, role: Role) -> Objective:
    """Make the objective that ``chosen`` names, for a client of ``role``.

    Raises:
        InputError: an unknown name or hyperparameter, a bad value, or the wrong role.
    """
    options = dict(chosen.objective)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise InputError(f"objective {chosen.objective!r} needs a name{nearest('', [*OBJECTIVES])}")
    objective = OBJECTIVES.build(name, options)
    if objective.role != role:
        raise InputError(f"objective {name!r} is for {objective.role} clients, not {role} ones")
    return objective


def unfit_files(
    objective: Objective, identity: ClientIdentity, *, spare: bool = False
) -> Iterator[tuple[str, str]]:
    """Say which of a client's files its objective misses or has no use for, key by key.

    With ``spare`` a file that the objective has no use for is none to complain of.
    """
    if objective.needs_retain and identity.retain_data is None:
        yield (
            "retain_data",
            "the objective has a retain term, so the client needs records of its own that it "
            "keeps; name a JSONL file, or leave out forget.objective.retain_term",
        )
    if spare:
        return
    if not objective.needs_retain and identity.retain_data is not None:
        remedy = (
            "set forget.objective.retain_term, or leave the file out"
            if identity.role == "forget"
            else "a retain client keeps its data; leave the file out"
        )
        yield "retain_data", f"its objective has no retain term to use it in; {remedy}"
    if not objective.needs_preferred and identity.refusals is not None:
        yield "refusals", "its objective prefers no answer to another, as dpo does; leave it out"


def refuse_unfit_files(
    objective: Objective, identity: ClientIdentity, *, spare: bool = False
) -> None:
    """Check the client's files against its objective; ``spare`` as in :func:`unfit_files`.

    Raises:
        InputError: one is missing or of no use; the text names the key.
    """
    if faults := [f"{key}: {text}" for key, text in unfit_files(objective, identity, spare=spare)]:
        raise InputError("; ".join(faults))

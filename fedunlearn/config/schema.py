"""The typed configuration of a run; below the roots only these objects are passed on."""

from typing import Literal

from fedunlearn.aggregation import MergeSettings
from fedunlearn.evaluation import EvaluationSettings
from fedunlearn.merging import MERGE_METHODS
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.loading import ModelSettings
from fedunlearn.rounds import OutlierPolicy
from fedunlearn.settings import settings
from fedunlearn.training.client_settings import ClientIdentity, ClientInstructions
from fedunlearn.training.expert_lesson import LessonSettings
from fedunlearn.training.fisher_pass import FisherSettings
from fedunlearn.training.loop import TrainingSettings
from fedunlearn.training.teaching import WorldSettings
from fedunlearn.training.workbench import ResumeSettings


@settings
class SweepSettings:
    """The gamma sweep, done on the server with the summaries at hand; no client runs again.

    Attributes:
        gammas: name from ``merges`` to the scales tried for it (eq. 5), each > 0. Scales of
            different methods are not comparable, so each merge has its own; a merge that is not
            named is not swept. ``None`` switches the sweep off.
    """

    gammas: dict[str, tuple[float, ...]] | None = None

    def __post_init__(self) -> None:
        for name, gammas in (self.gammas or {}).items():
            if any(gamma <= 0 for gamma in gammas):
                raise ValueError(f"gammas.{name} must be > 0, got {list(gammas)}")
            if len(set(gammas)) != len(gammas):
                raise ValueError(f"gammas.{name} must differ, got {list(gammas)}")


@settings
class FederationSettings:
    """How the clients are run and waited for.

    Attributes:
        client_cpus: CPU cores a simulated client gets; also its number of threads, so that
            results do not depend on how many run at once.
        client_gpus: share of a GPU a simulated client gets; 0 keeps clients on the CPU.
        workers: simulated clients that run at once, at most; ``None``: as many as fit.
        expected_clients: clients that a deployment with an empty list of ``clients`` waits for,
            neither fewer nor more; ``None``: whoever joins within the first minute. A list of
            ``clients`` says their number itself.
        expected_nodes: SuperNodes a deployment waits for, where one holds several clients;
            ``None``: as many as clients.
        deadline_s: seconds the server waits for the round before it names who is missing.
        fisher_upload: ``kept``: a client that is not pooled with another sends of its Fisher only
            the entries that the run's merges use, the alpha of the one with the largest: a sixth
            of the size at alpha 0.1, with the same result. ``all``: everything, for merges or
            sweeps at a larger alpha later.
        evaluate: a merge that every client is sent after the round, to measure base model and
            merge on its own data. Only means over at least 10 of its records come back, rounded
            to 3 decimals; a client with fewer says nothing. ``None``: clients are not asked. Only
            in FIRM: clients of MPU must not have the model.
        allow_partial: go on without clients that failed; the report says whose data is then
            not unlearned or not protected. Off: the run fails and no model is written.
        secure_aggregation: must be off: the server sees every upload in the clear. See
            ``docs/DEPLOYMENT.md`` for what could be hidden from it, and why nothing is yet.
        min_forget_per_domain: clients that every forget domain must have in the result; fewer,
            and the run fails. 0: no demand.
        require_all_retain: with ``allow_partial``, fail all the same when a retain client is
            missing: nobody's data is damaged because its client was ill.
        outliers: of a client whose task vector or Fisher is unlike the others' in its norm:
            ``report`` it and warn; ``refuse`` what it sent, as if it had failed; or ``clip`` it to
            the norm at the threshold.
        outlier_threshold: modified z-score, in log space, from which on a norm is an outlier.
        max_upload_bytes: of the arrays one client sends. What a client would send is known before
            it trains: where that is more, the run ends there, with the size and what to do.
            ``None``: no limit; Flower cuts messages into chunks and has none.
    """

    client_cpus: int = 1
    client_gpus: float = 0.0
    workers: int | None = None
    expected_clients: int | None = None
    expected_nodes: int | None = None
    deadline_s: float = 3600.0
    fisher_upload: Literal["kept", "all"] = "kept"
    evaluate: str | None = None
    allow_partial: bool = False
    secure_aggregation: bool = False
    min_forget_per_domain: int = 0
    require_all_retain: bool = False
    outliers: OutlierPolicy = "report"
    outlier_threshold: float = 3.5
    max_upload_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.secure_aggregation:
            raise ValueError(
                "secure_aggregation is not available: Flower's SecAgg+ cannot carry these uploads, "
                "and the server needs those of retain clients one by one "
                "(docs/DEPLOYMENT.md#secure-aggregation); set it to false"
            )
        if self.client_cpus < 1 or self.client_gpus < 0 or self.deadline_s <= 0:
            raise ValueError("client_cpus must be >= 1, client_gpus >= 0 and deadline_s > 0")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be >= 1 or null, got {self.workers}")
        for name in ("expected_clients", "expected_nodes"):
            if (count := getattr(self, name)) is not None and count < 1:
                raise ValueError(f"{name} must be >= 1 or null, got {count}")
        if self.min_forget_per_domain < 0 or not self.outlier_threshold > 0:
            raise ValueError("min_forget_per_domain must be >= 0 and outlier_threshold > 0")
        if self.max_upload_bytes is not None and self.max_upload_bytes < 1:
            raise ValueError(f"max_upload_bytes must be >= 1 or null, got {self.max_upload_bytes}")


@settings
class PreviousSettings:
    """The finished run whose result this one starts from; ``fedunlearn run --from`` sets it.

    Attributes:
        receipt: its ``receipt.json``.
        result: name of the merge, or arm, that is gone on with.
    """

    receipt: str
    result: str


@settings
class CumulativeSettings:
    """How much damage a retain client may take over a whole sequence of requests.

    Attributes:
        budget: largest Fisher damage a tensor (eq. 6), summed over the requests, for every retain
            client; ``None``: no such limit. What earlier requests took is subtracted, and merges
            that have a budget get no more than what is left.
        when_spent: what to do once nothing is left: ``refuse`` the merges that have a budget, or
            ``warn`` and keep to the budget of this request alone.
    """

    budget: float | None = None
    when_spent: Literal["refuse", "warn"] = "refuse"

    def __post_init__(self) -> None:
        if self.budget is not None and not self.budget > 0:
            raise ValueError(f"budget must be > 0 or null, got {self.budget}")


@settings
class CommonConfig:
    """What a run depends on, whichever way it unlearns.

    Attributes:
        name: of the run; part of its folder's name.
        seed: every draw of the run is derived from it, but for MPU's secrets.
        world: the embedded world, made if it is not there yet; ``None`` with one's own data.
        model: the model that is to forget; in MPU only the server has its weights.
        teach: what ``fedunlearn teach`` makes an expert of; a run does not read it.
        clients: who takes part, with what role, on whose data; empty in a deployment that
            takes whoever answers, since a deployed node says all this about itself. How many
            that should be is ``federation.expected_clients``.
        evaluation: the question sets.
        leaks: what to do when clients and evaluation sets share records that they should not:
            ``warn`` in the report, refuse the run with an ``error``, or ``allow`` it.
        federation: how the clients are run.
        requests: ids of the erasure requests that the run answers; written into its receipt.
        receipt_key: file of the server's Ed25519 key, which signs the receipt; ``None``: it is
            sealed with a hash only. See docs/RECEIPTS.md.
        previous: the run that this one goes on from; ``None``: the first of its kind.
        resume: what clients keep on their disks, to go on after they were killed.
    """

    name: str
    seed: int = 0
    world: WorldSettings | None = None
    model: ModelSettings
    teach: LessonSettings | None = None
    clients: tuple[ClientIdentity, ...] = ()
    evaluation: EvaluationSettings
    leaks: Literal["warn", "error", "allow"] = "warn"
    federation: FederationSettings = FederationSettings()
    requests: tuple[str, ...] = ()
    receipt_key: str | None = None
    previous: PreviousSettings | None = None


@settings
class RunConfig(CommonConfig):
    """A run of FIRM: one round, then merges of what the clients sent.

    Attributes:
        method: ``firm``.
        lora: the adapters all clients train.
        forget: training of the forget clients.
        retain: training of the retain clients.
        fisher: the Fisher estimate of all clients.
        merges: name to merge; each is written below ``merged/<name>``, evaluated and reported.
        sweep: the gamma sweep.
        cumulative: damage over a sequence of requests.
    """

    method: Literal["firm"] = "firm"
    lora: LoraSettings
    forget: TrainingSettings
    retain: TrainingSettings
    fisher: FisherSettings = FisherSettings()
    merges: dict[str, MergeSettings]
    sweep: SweepSettings = SweepSettings()
    resume: ResumeSettings = ResumeSettings()
    cumulative: CumulativeSettings = CumulativeSettings()

    def instructions(self, *, server_round: int = 1) -> ClientInstructions:
        """Return what the server tells every client."""
        return ClientInstructions(
            seed=self.seed,
            server_round=server_round,
            lora=self.lora,
            forget=self.forget,
            retain=self.retain,
            fisher=self.fisher,
            fisher_kept=self.fisher_kept,
        )

    @property
    def fisher_kept(self) -> float:
        """Fraction of its Fisher's entries that a client sends if it is not pooled."""
        whole = any(MERGE_METHODS[one.method].needs_whole_fisher for one in self.merges.values())
        if whole or self.federation.fisher_upload == "all":
            return 1.0
        return max(one.alpha for one in self.merges.values())

    @property
    def swept(self) -> dict[str, tuple[float, ...]]:
        """Merges that are swept over gamma, with their scales, in the order of ``merges``."""
        gammas = self.sweep.gammas or {}
        return {name: gammas[name] for name in self.merges if gammas.get(name)}

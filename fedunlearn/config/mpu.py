"""The configuration of an MPU run: rounds of perturbed copies (arXiv 2602.23798)."""

from collections.abc import Mapping
from typing import Any, Literal

from fedunlearn.config.schema import CommonConfig
from fedunlearn.copies import CopySettings
from fedunlearn.copies.update import CopyTicket
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.loading import ModelSettings
from fedunlearn.settings import settings
from fedunlearn.training.copy_job import CopyInstructions
from fedunlearn.training.loop import TrainingSettings

Scheme = Literal["mpu", "noised", "clean"]


@settings
class ArmSettings:
    """One way of unlearning that a run carries through and reports.

    Attributes:
        scheme: ``mpu``; or a baseline of the paper (section 5.1): ``clean`` publishes the weights
            as they are, ``noised`` one noisy copy whose noise stays in the model.
        rounds: R, rounds of the server. Local epochs E are ``forget.epochs``.
        copies: how many copies, how noisy, in which precision.
        forget: training of forget clients.
        retain: training of retain clients; ``None``: there are none.
        lora: clients train an adapter on each copy and send its factors; ``None``: they train
            all weights and send all.
        weighting: of the clients' updates in a round: by their ``examples``, or all ``equal``.
    """

    scheme: Scheme = "mpu"
    rounds: int = 1
    copies: CopySettings = CopySettings()
    forget: TrainingSettings
    retain: TrainingSettings | None = None
    lora: LoraSettings | None = None
    weighting: Literal["examples", "equal"] = "examples"

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds must be >= 1, got {self.rounds}")

    @property
    def copies_a_round(self) -> int:
        """How many copies are published in a round."""
        return self.copies.m if self.scheme == "mpu" else 1

    def instructions(self, seed: int, ticket: CopyTicket) -> CopyInstructions:
        """Return what the server tells every client beside a copy."""
        return CopyInstructions(
            seed=seed, ticket=ticket, lora=self.lora, forget=self.forget, retain=self.retain
        )


@settings
class MpuConfig(CommonConfig):
    """A run of MPU and its baselines, arm by arm, with the same clients.

    Attributes:
        method: ``mpu``.
        reference: the public model that the server's was made from (eq. 3). Clients take
            architecture and tokenizer from it, and nothing else is on their side; its precision
            is what they train in.
        arms: name to arm; each starts from ``model`` and is written below ``unlearned/<name>``.
        secret_seed: noise and symmetries of all copies are derived from it, so that a run can be
            repeated and nothing is secret. ``None``: from the operating system's randomness.
        keep_state: keep after every copy what the server needs to go on after an interruption:
            its weights and the sum so far, beside the run. Costs that much disk and its time.
    """

    method: Literal["mpu"]
    reference: ModelSettings
    arms: dict[str, ArmSettings]
    secret_seed: int | None = None
    keep_state: bool = True

    def __post_init__(self) -> None:
        if not self.arms:
            raise ValueError("arms must name at least one way of unlearning")
        for key, one in (("model", self.model), ("reference", self.reference)):
            if one.expert is not None:
                raise ValueError(
                    f"{key}.expert: copies are of one set of weights; export the model with its "
                    "expert merged in, and name that folder"
                )
        if self.reference.quantization is not None:
            raise ValueError("reference.quantization: a copy cannot be trained in 4 bits")


def spread_defaults(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the section ``defaults`` below every arm, key by key; what an arm says wins.

    Objectives are not mixed: an arm that names another one starts from that one's own defaults.
    """
    spread = {key: value for key, value in tree.items() if key != "defaults"}
    defaults, arms = tree.get("defaults"), tree.get("arms")
    if isinstance(defaults, Mapping) and isinstance(arms, Mapping):
        spread["arms"] = {name: _merged(defaults, arm) for name, arm in arms.items()}
    return spread


def _merged(below: Any, above: Any) -> Any:
    if above is None and isinstance(below, Mapping):
        return dict(below)
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    if "name" in above and above["name"] != below.get("name"):
        return dict(above)
    both = {key: _merged(below[key], above[key]) for key in below.keys() & above.keys()}
    return {**below, **above, **both}

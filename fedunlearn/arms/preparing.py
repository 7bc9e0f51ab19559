"""Makes the rounds of every arm ready: weights, reference, plan, self-check, secret, state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedunlearn.arms.files import (
    UNLEARNED_FOLDER,
    ArmOutcome,
    is_unlearned,
    update_norm,
    write_unlearned,
)
from fedunlearn.config import ArmSettings, MpuConfig
from fedunlearn.copies import CopyPlan, RoundSecret, plan_copies, self_check
from fedunlearn.copies.rounds import CopyRounds, RoundsPlan
from fedunlearn.copies.state import StateFolder
from fedunlearn.models.loading import LoadedModel, load_base
from fedunlearn.seeding import derive

STATE_FOLDER = "server"
_ARM = TypeAdapter(ArmSettings)


@dataclass(frozen=True, eq=False)
class Arm:
    """One arm, ready to be run.

    Attributes:
        name: of the arm.
        settings: of the arm.
        rounds: the server's side; its ``weights`` are the arm's own.
        self_check: see :class:`ArmOutcome`.
    """

    name: str
    settings: ArmSettings
    rounds: CopyRounds
    self_check: float | None


class Bench:
    """What all arms of a run start from; the models are loaded when first needed.

    Args:
        config: of the run.
        run_dir: its folder.

    Raises:
        InputError: a model cannot be loaded, its architecture has no known symmetries, or the
            public one has another shape.
        RunError: a copy without noise computes something else than the model.
    """

    def __init__(self, config: MpuConfig, run_dir: Path) -> None:
        self._config, self._run_dir = config, run_dir

    @cached_property
    def _base(self) -> LoadedModel:
        return load_base(self._config.model)

    @cached_property
    def _weights(self) -> dict[str, Tensor]:
        return _plain_weights(self._base)

    @cached_property
    def _reference(self) -> dict[str, Tensor]:
        return _plain_weights(load_base(self._config.reference))

    @cached_property
    def _layout(self) -> CopyPlan:
        shapes = {name: tuple(weight.shape) for name, weight in self._weights.items()}
        return plan_copies(self._base.model.config, shapes)

    def arms(self) -> Iterator[Arm]:
        """Make one arm after another ready, those whose result is there already left out."""
        for name, chosen in self._config.arms.items():
            if is_unlearned(self._run_dir, name):
                self._state(name).clear()
            else:
                yield self._arm(name, chosen)

    def _arm(self, name: str, chosen: ArmSettings) -> Arm:
        secret = self._secret(name)
        checked = None
        if chosen.scheme == "mpu":
            checked = self_check(self._base.model, self._layout, chosen.copies, secret)
        plan = RoundsPlan(
            name=name,
            scheme=chosen.scheme,
            rounds=chosen.rounds,
            copies=chosen.copies,
            adapters=chosen.lora is not None,
            equal=chosen.weighting == "equal",
            fingerprint=repr((self._config.seed, self._config.clients, chosen)),
        )
        rounds = CopyRounds(
            plan,
            self._layout,
            {shape: self._weights[shape].clone() for shape in self._layout.shapes},
            self._reference,
            secret,
            state=self._state(name) if self._config.keep_state else None,
        )
        return Arm(name, chosen, rounds, checked)

    def _secret(self, name: str) -> RoundSecret:
        seed = self._config.secret_seed
        return RoundSecret.from_os() if seed is None else RoundSecret.from_seed(derive(seed, name))

    def _state(self, name: str) -> StateFolder:
        return StateFolder(self._run_dir / STATE_FOLDER / name)

    def write(self, arm: Arm, *, seconds: float, bytes_uploaded: int) -> ArmOutcome:
        """Write an arm's result, and drop its state with the secret.

        Args:
            arm: all of whose rounds are over.
            seconds: that they took.
            bytes_uploaded: of the largest update.
        """
        before, after = self._weights, arm.rounds.weights
        delta = {name: after[name] - before[name] for name in after}
        published = self._layout.shapes.values()
        width = arm.settings.copies.dtype.itemsize if arm.settings.scheme == "mpu" else 4
        outcome = ArmOutcome(
            name=arm.name,
            scheme=arm.settings.scheme,
            base_model=self._base.name,
            base_model_sha256=self._base.sha256,
            settings=_ARM.dump_python(arm.settings, mode="json"),
            secret="os" if self._config.secret_seed is None else "seed",
            self_check=arm.self_check,
            notes=self._layout.notes if arm.settings.scheme == "mpu" else (),
            copies=arm.rounds.facts,
            norm=update_norm(delta),
            clients=arm.rounds.clients,
            bytes_published=width * sum(torch.Size(shape).numel() for shape in published),
            bytes_uploaded=bytes_uploaded,
            seconds=seconds,
        )
        write_unlearned(self._run_dir / UNLEARNED_FOLDER / arm.name, outcome, delta)
        self._state(arm.name).clear()
        return outcome


def _plain_weights(loaded: LoadedModel) -> dict[str, Tensor]:
    """Every parameter once, float32, on the CPU."""
    parameters: Mapping[str, Tensor] = dict(loaded.model.named_parameters())
    return {name: one.detach().to("cpu", torch.float32) for name, one in parameters.items()}

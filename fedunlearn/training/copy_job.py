"""What one client does with one published copy, without any Flower: unlearn on it, say what moved.

Everything that is drawn (the order of the data, an adapter's start, preferred answers) depends on
the run's seed, the client and the round, and not on the copy: MPU's noise cancels because every
copy takes the same steps.
"""

from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor

from fedunlearn.copies.update import CopyTicket, CopyUpdate, UpdateMeta
from fedunlearn.errors import FedUnlearnError, InputError
from fedunlearn.models.adapters import LoraSettings, attached, read_adapter
from fedunlearn.models.architecture import Architecture
from fedunlearn.models.loading import LoadedModel
from fedunlearn.progress import Progress
from fedunlearn.roles import Role
from fedunlearn.seeding import derive, generator
from fedunlearn.settings import settings
from fedunlearn.training.client_settings import ClientIdentity
from fedunlearn.training.footprint import footprint
from fedunlearn.training.loop import TrainingFacts, TrainingSettings, train
from fedunlearn.training.materials import Materials, gather


@settings
class CopyInstructions:
    """What the server tells every client beside the copy itself.

    Attributes:
        seed: of the whole run; clients derive their own from it. Not the one of the server's
            secrets.
        ticket: which copy it is.
        lora: the adapter to train; ``None``: all weights are trained.
        forget: training of forget clients.
        retain: training of retain clients; ``None``: the run has none.
    """

    seed: int
    ticket: CopyTicket
    lora: LoraSettings | None = None
    forget: TrainingSettings
    retain: TrainingSettings | None = None

    def training(self, role: Role) -> TrainingSettings:
        """The settings of one role.

        Raises:
            InputError: the run has no training for it.
        """
        if role == "forget":
            return self.forget
        if self.retain is None:
            raise InputError("this run has no training for retain clients; give it a section")
        return self.retain


def run_copy_job(
    architecture: Architecture,
    identity: ClientIdentity,
    instructions: CopyInstructions,
    published: Mapping[str, Tensor],
    *,
    progress: Progress | None = None,
) -> CopyUpdate:
    """Unlearn on a published copy and return the displacement.

    Args:
        architecture: of the model, which is public.
        identity: who this is, and where its data lies.
        instructions: what to train.
        published: the copy's weights by name; they are left as they are.
        progress: called after every optimiser step.

    Raises:
        DataError: a data file of the client's is missing or malformed.
        InputError: the copy, the objective, its files or the adapter do not fit.
        RunError: training diverged before it learned anything; the text names the client.
    """
    chosen = instructions.training(identity.role)
    try:
        own = {name: weight.clone() for name, weight in published.items()}
        model = architecture.with_weights(own)
        materials = gather(
            model,
            identity,
            chosen,
            seed=instructions.seed,
            server_round=instructions.ticket.server_round,
            spare=True,
        )
        work = _Work(model, identity, instructions, materials, progress)
        with footprint(model.device) as taken:
            if instructions.lora is None:
                tensors, config, facts = work.full(published)
            else:
                tensors, config, facts = work.adapter(instructions.lora)
    except FedUnlearnError as fault:
        fault.args = (f"{identity.role} client {identity.id!r} ({identity.domain}): {fault}",)
        raise
    meta = UpdateMeta(
        ticket=instructions.ticket,
        client_id=identity.id,
        num_examples=len(materials.examples),
        training={"objective": dict(chosen.objective), **asdict(facts), **asdict(taken)},
        adapter_config=config,
    )
    update = CopyUpdate(meta, tensors)
    update.check({name: tuple(weight.shape) for name, weight in published.items()})
    return update


class _Work:
    """One training, of all weights or of an adapter."""

    def __init__(
        self,
        base: LoadedModel,
        identity: ClientIdentity,
        instructions: CopyInstructions,
        materials: Materials,
        progress: Progress | None,
    ) -> None:
        self._base, self._materials, self._progress = base, materials, progress
        self._instructions = instructions
        self._chosen = instructions.training(identity.role)
        self._names = ("client", identity.id, instructions.ticket.server_round)

    def full(
        self, published: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, object] | None, TrainingFacts]:
        """Train all weights; the displacement by parameter name, float32."""
        model = self._base.model.requires_grad_(True)
        with torch.random.fork_rng():  # dropout, where a model has it
            torch.manual_seed(derive(self._instructions.seed, *self._names, "dropout"))
            facts = self._train(model)
        moved = {
            name: weight.detach().float().cpu() - published[name].float()
            for name, weight in model.named_parameters()
        }
        return moved, None, facts

    def adapter(
        self, lora: LoraSettings
    ) -> tuple[dict[str, Tensor], dict[str, object] | None, TrainingFacts]:
        """Train an adapter; its factors and PEFT's configuration of it."""
        seed = derive(self._instructions.seed, *self._names, "adapter")
        with attached(self._base.model, lora, seed=seed) as adapted:
            facts = self._train(adapted)
            adapter = read_adapter(adapted)
        return adapter.weights, adapter.config, facts

    def _train(self, model: torch.nn.Module) -> TrainingFacts:
        return train(
            model,
            self._materials.examples,
            self._materials.objective,
            chosen=self._chosen,
            pad_id=self._base.tokenizer.pad_token_id or 0,
            generator=generator(self._instructions.seed, *self._names, "order"),
            preferred=self._materials.preferred,
            retain=self._materials.retain,
            progress=self._progress,
        )

"""What one client does in a FIRM round, without any Flower: train, estimate Fisher, sum up."""

from dataclasses import asdict

import torch
from torch import Tensor

from fedunlearn.data.encoding import Example, encode_record
from fedunlearn.data.reading import DataSpec, read_training_records
from fedunlearn.errors import FedUnlearnError, InputError, RunError
from fedunlearn.models.adapters import (
    Adapter,
    LoraSettings,
    adapted_parameters,
    attached,
    read_adapter,
)
from fedunlearn.models.loading import LoadedModel
from fedunlearn.objectives import OBJECTIVES, Objective
from fedunlearn.progress import Progress
from fedunlearn.registry import nearest
from fedunlearn.roles import Role
from fedunlearn.seeding import derive, generator
from fedunlearn.settings import settings
from fedunlearn.summary import ClientSummary, SummaryMeta, layout_digest
from fedunlearn.training.fisher_pass import FisherSettings, estimate_fisher
from fedunlearn.training.loop import TrainingFacts, TrainingSettings, train


@settings
class ClientIdentity:
    """What a node knows of itself; never told by the server.

    Attributes:
        id: unique in the federation; letters, digits, ``.``, ``_`` and ``-``.
        role: whether the data must go or stay.
        domain: what the data is about; forget clients of one domain are pooled.
        data: path of a file, or a data source and its settings; read on the node only.
    """

    id: str
    role: Role
    domain: str
    data: DataSpec


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
    """

    seed: int
    server_round: int = 1
    lora: LoraSettings
    forget: TrainingSettings
    retain: TrainingSettings
    fisher: FisherSettings

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


def run_client_job(
    base: LoadedModel,
    identity: ClientIdentity,
    instructions: ClientInstructions,
    *,
    progress: Progress | None = None,
) -> ClientSummary:
    """Train an adapter on the client's data, estimate its Fisher, and return both.

    The base model is shared: an adapter is put on it and taken off again, and the Fisher is
    estimated at its bare weights.

    Raises:
        DataError: the client's data file is missing or malformed.
        InputError: the objective or the adapter does not fit.
        RunError: training diverged, or the adapter did not learn; the text names the client.
    """
    chosen = instructions.training(identity.role)
    try:
        examples = _encode(base, identity, chosen.max_length)
        adapter, names, facts = _train_adapter(
            base, identity, instructions, examples=examples, progress=progress
        )
        _refuse_zero(adapter)
        longest = instructions.fisher.max_length
        fisher = estimate_fisher(
            base.model,
            examples if longest == chosen.max_length else _encode(base, identity, longest),
            names,
            chosen=instructions.fisher,
        )
    except FedUnlearnError as fault:
        fault.args = (f"{identity.role} client {identity.id!r} ({identity.domain}): {fault}",)
        raise
    return _summarise(base, identity, instructions, parts=(adapter, fisher, facts, len(examples)))


def _encode(base: LoadedModel, identity: ClientIdentity, max_length: int) -> list[Example]:
    records = read_training_records(identity.data)
    return [encode_record(base.tokenizer, record, max_length=max_length) for record in records]


def _train_adapter(
    base: LoadedModel,
    identity: ClientIdentity,
    instructions: ClientInstructions,
    *,
    examples: list[Example],
    progress: Progress | None,
) -> tuple[Adapter, list[str], TrainingFacts]:
    chosen = instructions.training(identity.role)
    names = ("client", identity.id, instructions.server_round)
    objective = build_objective(chosen, identity.role)
    key = objective.seed_key(identity.id, identity.domain)
    objective = objective.bind(
        generator(instructions.seed, "objective", *key), base.model.config.hidden_size
    )
    with attached(
        base.model, instructions.lora, seed=derive(instructions.seed, *names, "adapter")
    ) as adapted:
        facts = train(
            adapted,
            examples,
            objective,
            chosen=chosen,
            pad_id=base.tokenizer.pad_token_id or 0,
            generator=generator(instructions.seed, *names, "order"),
            progress=progress,
        )
        return read_adapter(adapted), adapted_parameters(adapted), facts


def _refuse_zero(adapter: Adapter) -> None:
    """An adapter whose every B is zero changes nothing; something kept it from learning."""
    factors = [value for key, value in adapter.weights.items() if "lora_B" in key]
    if not any(bool(torch.count_nonzero(factor)) for factor in factors):
        raise RunError(
            "the adapter is exactly zero after training; no gradient reached it, or the "
            "learning rate is too small"
        )


def _summarise(
    base: LoadedModel,
    identity: ClientIdentity,
    instructions: ClientInstructions,
    *,
    parts: tuple[Adapter, dict[str, Tensor], TrainingFacts, int],
) -> ClientSummary:
    adapter, fisher, facts, num_examples = parts
    objective = instructions.training(identity.role).objective
    summary = ClientSummary(
        meta=SummaryMeta(
            client_id=identity.id,
            role=identity.role,
            domain=identity.domain,
            objective=str(objective["name"]),
            num_examples=num_examples,
            base_model=base.name,
            base_model_sha256=base.sha256,
            fisher={**asdict(instructions.fisher), "dtype": "bfloat16", "reference": "base model"},
            training={"objective": dict(objective), **asdict(facts)},
            layout_digest=layout_digest(fisher),
        ),
        adapter_config={**adapter.config, "base_model_name_or_path": base.name},
        adapter=adapter.weights,
        fisher=fisher,
    )
    summary.validate()
    return summary

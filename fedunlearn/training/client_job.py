"""What one client does in a FIRM round, without any Flower: train, estimate Fisher, sum up."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from fedunlearn.errors import FedUnlearnError, RunError
from fedunlearn.models.adapters import (
    Adapter,
    adapted_parameters,
    attached,
    read_adapter,
)
from fedunlearn.models.loading import LoadedModel, fingerprint
from fedunlearn.models.quantized import training_copy
from fedunlearn.progress import Progress
from fedunlearn.seeding import derive, generator
from fedunlearn.summary import ClientSummary, SummaryMeta, layout_digest
from fedunlearn.tensors.fisher import keep_largest
from fedunlearn.training.checkpoints import Checkpoints
from fedunlearn.training.client_settings import ClientIdentity, ClientInstructions
from fedunlearn.training.fisher_pass import estimate_fisher
from fedunlearn.training.footprint import Footprint, footprint
from fedunlearn.training.loop import TrainingFacts, train
from fedunlearn.training.materials import Materials, encode_file, gather
from fedunlearn.training.workbench import ResumeSettings, task_of, workbench


def run_client_job(
    base: LoadedModel,
    identity: ClientIdentity,
    instructions: ClientInstructions,
    *,
    progress: Progress | None = None,
    resume: ResumeSettings | None = None,
) -> ClientSummary:
    """Train an adapter on the client's data, estimate its Fisher, and return both.

    With a folder to ``resume`` from, a client that was killed goes on where its last checkpoint
    was, and one that had finished returns its summary from there.

    The base model is shared: an adapter is put on it and taken off again, and the Fisher is
    estimated at its bare weights, whose hash is checked first. Where training is on a quantised
    copy, base and copy take turns in memory: the copy is freed before the base is loaded back.

    Raises:
        DataError: a data file of the client's is missing or malformed.
        InputError: the objective, its files or the adapter do not fit.
        RunError: training diverged before it learned anything, the adapter did not learn, or the
            base model was left changed; the text names the client.
    """
    try:
        if resume is None or resume.folder is None:
            done = _do(base, identity, instructions, progress=progress)
            return _summarise(base, identity, instructions, done=done)
        with workbench(resume, identity.id, task_of(base, identity, instructions)) as bench:
            if (kept := bench.finished()) is not None:
                return kept
            at = bench.checkpoints
            done = _do(base, identity, instructions, progress=progress, checkpoints=at)
            summary = _summarise(base, identity, instructions, done=done)
            bench.finish(summary)
            return summary
    except FedUnlearnError as fault:
        fault.args = (f"{identity.role} client {identity.id!r} ({identity.domain}): {fault}",)
        raise


@dataclass(frozen=True)
class _Done:
    """What the work came to, and what its two halves took."""

    adapter: Adapter
    fisher: dict[str, Tensor]
    facts: TrainingFacts
    num_examples: int
    training: Footprint
    estimation: Footprint


def _do(
    base: LoadedModel,
    identity: ClientIdentity,
    instructions: ClientInstructions,
    *,
    progress: Progress | None,
    checkpoints: Checkpoints | None = None,
) -> _Done:
    chosen = instructions.training(identity.role)
    materials = gather(
        base,
        identity,
        chosen,
        seed=instructions.seed,
        server_round=instructions.server_round,
    )
    with training_copy(base) as trained, footprint(trained.device) as training:
        adapter, names, facts = _train_adapter(
            trained,
            identity,
            instructions,
            materials=materials,
            progress=progress,
            checkpoints=checkpoints,
        )
    _refuse_zero(adapter)
    examples, longest = materials.examples, instructions.fisher.max_length
    if longest != chosen.max_length:
        examples = tuple(encode_file(base, identity.data, longest))
    _refuse_other_weights(base)
    with footprint(base.device) as estimation:
        fisher = estimate_fisher(base.model, examples, names, chosen=instructions.fisher)
    if instructions.fisher_kept < 1.0:
        kept = instructions.fisher_kept
        fisher = {name: keep_largest(tensor, kept) for name, tensor in fisher.items()}
    return _Done(adapter, fisher, facts, len(examples), training=training, estimation=estimation)


def _train_adapter(
    base: LoadedModel,
    identity: ClientIdentity,
    instructions: ClientInstructions,
    *,
    materials: Materials,
    progress: Progress | None,
    checkpoints: Checkpoints | None,
) -> tuple[Adapter, list[str], TrainingFacts]:
    chosen = instructions.training(identity.role)
    names = ("client", identity.id, instructions.server_round)
    with attached(
        base.model,
        instructions.lora,
        seed=derive(instructions.seed, *names, "adapter"),
        expert=base.expert,
    ) as adapted:
        facts = train(
            adapted,
            materials.examples,
            materials.objective,
            chosen=chosen,
            pad_id=base.tokenizer.pad_token_id or 0,
            generator=generator(instructions.seed, *names, "order"),
            preferred=materials.preferred,
            retain=materials.retain,
            progress=progress,
            checkpoints=checkpoints,
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


def _refuse_other_weights(base: LoadedModel) -> None:
    """The Fisher is that of the raw backbone, bit for bit: no adapter, no expert, no update."""
    if (digest := fingerprint(base.model)) != base.sha256:
        raise RunError(
            f"the Fisher must be taken at the weights of {base.name!r} as loaded (hash "
            f"{base.sha256[:12]}), but the model now has {digest[:12]}: something was left on it"
        )


def _summarise(
    base: LoadedModel,
    identity: ClientIdentity,
    instructions: ClientInstructions,
    *,
    done: _Done,
) -> ClientSummary:
    objective = instructions.training(identity.role).objective
    summary = ClientSummary(
        meta=SummaryMeta(
            client_id=identity.id,
            role=identity.role,
            domain=identity.domain,
            objective=str(objective["name"]),
            num_examples=done.num_examples,
            base_model=base.name,
            base_model_sha256=base.start_sha256,
            expert=base.expert.name if base.expert else "",
            expert_sha256=base.expert.sha256 if base.expert else "",
            fisher={
                **asdict(instructions.fisher),
                "dtype": "bfloat16",
                "reference": "base model",
                "reference_sha256": base.sha256,
                "kept": instructions.fisher_kept,
                **asdict(done.estimation),
            },
            training={
                "objective": dict(objective),
                **asdict(done.facts),
                **asdict(done.training),
            },
            layout_digest=layout_digest(done.fisher),
        ),
        adapter_config={**done.adapter.config, "base_model_name_or_path": base.name},
        adapter=done.adapter.weights,
        fisher=done.fisher,
    )
    summary.validate()
    return summary

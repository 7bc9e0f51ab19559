"""An MPU run for tests, and clients of it that misbehave."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fedunlearn.config import ArmSettings, FederationSettings, MpuConfig
from fedunlearn.copies import CopySettings
from fedunlearn.copies.update import CopyUpdate
from fedunlearn.data.records import write_jsonl
from fedunlearn.evaluation import EvaluationSet, EvaluationSettings
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.architecture import Architecture
from fedunlearn.models.loading import ModelSettings
from fedunlearn.training.client_settings import ClientIdentity
from fedunlearn.training.copy_job import CopyInstructions, run_copy_job
from fedunlearn.training.loop import TrainingSettings
from tests.world import pocket_model, questions

BRIEF = {"learning_rate": 1e-3, "epochs": 1, "batch_size": 4, "max_length": 64}
ARM = ArmSettings(
    rounds=2,
    copies=CopySettings(kappa=0.05),
    forget=TrainingSettings(objective={"name": "npo"}, **BRIEF),  # type: ignore[arg-type]
    retain=TrainingSettings(objective={"name": "retain_nll"}, **BRIEF),  # type: ignore[arg-type]
)
LORA_ARM = replace(ARM, rounds=1, lora=LoraSettings(rank=2, alpha=4))
HONEST = (("f-1", "forget", "brewing"), ("r-1", "retain", "geography"))


def copies_config(directory: Path, *ids: str, **settings: object) -> MpuConfig:
    """A run of honest clients, plus one forget client for each of ``ids``."""
    for name, seed in (("model", 0), ("reference", 1)):
        made = pocket_model(seed=seed)
        if name == "model":  # taught models differ from their reference everywhere
            made.model.model.norm.weight.add_(torch.linspace(0.0, 0.1, 32))
        made.model.save_pretrained(directory / name)
        made.tokenizer.save_pretrained(directory / name)  # type: ignore[attr-defined]
    data = directory / "data.jsonl"
    write_jsonl(data, [{"question": q.question, "answer": q.answer} for q in questions(4)])
    who = [*HONEST, *((client_id, "forget", "brewing") for client_id in ids)]
    return MpuConfig(
        method="mpu",
        name="pocket",
        secret_seed=5,
        model=ModelSettings(path=str(directory / "model"), device="cpu"),
        reference=ModelSettings(path=str(directory / "reference"), device="cpu"),
        clients=tuple(
            ClientIdentity(
                id=i, role="forget" if role == "forget" else "retain", domain=d, data=str(data)
            )
            for i, role, d in who
        ),
        arms={"mpu": ARM},
        evaluation=EvaluationSettings(
            sets=(EvaluationSet(name="u", kind="utility", data=str(data)),), max_new_tokens=2
        ),
        federation=FederationSettings(**{"deadline_s": 60.0, **settings}),  # type: ignore[arg-type]
    )


def copy_job(
    architecture: Architecture,
    identity: ClientIdentity,
    instructions: CopyInstructions,
    published: Mapping[str, Tensor],
) -> CopyUpdate:
    """The real job, except for clients whose id says how they misbehave."""
    sort = identity.id.split("-")[0]
    if sort == "raises" or (sort == "late" and instructions.ticket.copy == 2):
        raise ValueError("boom")
    if sort == "hangs":
        time.sleep(3600)
    return _spoil(run_copy_job(architecture, identity, instructions, published), sort)


def _spoil(update: CopyUpdate, sort: str) -> CopyUpdate:
    tensors = dict(update.tensors)
    name = sorted(tensors)[0]
    meta = update.meta
    if sort == "nan":
        tensors[name] = torch.full_like(tensors[name], float("nan"))
    if sort == "shape":
        tensors[name] = tensors[name][..., :-1].contiguous()
    if sort == "key":
        tensors["renamed." + name] = tensors.pop(name)
    if sort == "lacking":
        del tensors[name]
    if sort == "zero":
        tensors = {key: torch.zeros_like(value) for key, value in tensors.items()}
    if sort == "poison":
        tensors = {key: one if ".lora_A." in key else one * 100 for key, one in tensors.items()}
    if sort == "regex":
        pattern = {"rank_pattern": {"(([a-z.0-9])+.)+#": 2}}
        meta = replace(meta, adapter_config={**(meta.adapter_config or {}), **pattern})
    if sort == "impostor":
        meta = replace(meta, client_id="f-1")
    if sort == "stale":
        meta = replace(meta, ticket=replace(meta.ticket, server_round=7))
    if sort == "other":
        meta = replace(meta, ticket=replace(meta.ticket, digest="0" * 64))
    return CopyUpdate(meta, tensors)

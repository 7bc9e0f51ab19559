"""A merged update as a LoRA adapter that stock PEFT loads."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedunlearn.errors import InputError
from fedunlearn.export.joining import join_expert
from fedunlearn.export.outcome import EXPORT_FILE, ExportedTensor, ExportReport, summarise
from fedunlearn.models.expert import Expert
from fedunlearn.storage import atomic_folder, write_json, write_tensors
from fedunlearn.summary.layout import adapter_keys, module_name
from fedunlearn.tensors.low_rank import truncate


def export_adapter(
    delta: Mapping[str, Tensor],
    rank: int | None,
    base_name: str,
    out: Path,
    *,
    transposed: bool = False,
    expert: Expert | None = None,
) -> ExportReport:
    """Write the nearest adapter of a rank as ``out``, whole or not at all.

    Each weight's update is truncated by singular values, which is the best approximation of
    that rank; the error is stated for every weight and in total. The scaling of the adapter
    is 1. An expert is added without loss, by putting the factors side by side: ranks add up,
    and the adapter is relative to the bare backbone.

    Args:
        delta: base parameter name to update dW of the base weight's shape.
        rank: of every weight, at most what its shape allows; ``None``: all of it, without loss
            beyond rounding to float32.
        base_name: base model, written to ``adapter_config.json``.
        out: the folder; an earlier export there is replaced.
        transposed: weights are stored as (d_in, d_out).
        expert: that the update comes on top of.

    Raises:
        InputError: a rank below 1, no update at all, an expert for weights stored the other way
            round, or something that is no export at ``out``.
    """
    if rank is not None and rank < 1:
        raise InputError(f"rank must be at least 1, got {rank}")
    if not delta:
        raise InputError("there is no update to export")
    ranks = {name: _rank(update, rank) for name, update in sorted(delta.items())}
    factors: dict[str, Tensor] = {}
    tensors: dict[str, ExportedTensor] = {}
    for name, factor_a, factor_b, error in _truncated(delta, ranks, transposed=transposed):
        key_a, key_b = adapter_keys(name)
        factors |= {key_a: factor_a, key_b: factor_b}
        tensors[name] = ExportedTensor(delta[name].double().norm().item(), error, ranks[name])
    if expert is not None:
        if expert.lora.transposed != transposed:
            raise InputError(f"expert {expert.name!r} and the update differ in fan_in_fan_out")
        factors, ranks = join_expert(factors, expert)
        tensors = {
            name: replace(tensors.get(name, ExportedTensor(0.0, 0.0)), rank=rank)
            for name, rank in ranks.items()
        }
    report = summarise("adapter", base_name, tensors, expert=expert)
    with atomic_folder(out, marker=EXPORT_FILE) as partial:
        write_tensors(partial / "adapter_model.safetensors", factors)
        write_json(
            partial / "adapter_config.json", _config(ranks, base_name, transposed=transposed)
        )
        write_json(partial / EXPORT_FILE, asdict(report))
    return report


def _rank(update: Tensor, rank: int | None) -> int:
    largest = min(update.shape)
    return largest if rank is None else min(rank, largest)


def _truncated(
    delta: Mapping[str, Tensor], ranks: Mapping[str, int], *, transposed: bool
) -> Iterator[tuple[str, Tensor, Tensor, float]]:
    for name, rank in ranks.items():
        update = delta[name].T if transposed else delta[name]
        factor_a, factor_b, error = truncate(update, rank)
        yield name, factor_a, factor_b, error


def _config(ranks: Mapping[str, int], base_name: str, *, transposed: bool) -> dict[str, Any]:
    """Content of ``adapter_config.json``; alpha equals the rank everywhere, so that s = 1."""
    highest = max(ranks.values())
    unlike = {module_name(name): rank for name, rank in ranks.items() if rank != highest}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "inference_mode": True,
        "r": highest,
        "lora_alpha": highest,
        "rank_pattern": unlike,
        "alpha_pattern": dict(unlike),
        "target_modules": [module_name(name) for name in ranks],
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": transposed,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "init_lora_weights": True,
    }

"""A merged update inside a copy of the base model, as a folder that stock transformers loads."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from fedunlearn.errors import InputError
from fedunlearn.export.joining import OnExpert
from fedunlearn.export.outcome import EXPORT_FILE, ExportedTensor, ExportReport, summarise
from fedunlearn.models.loading import LoadedModel, no_progress_bars
from fedunlearn.models.patching import applied, patched
from fedunlearn.storage import atomic_folder, write_json


def export_model(
    delta: Mapping[str, Tensor],
    base: LoadedModel,
    out: Path,
    *,
    base_sha256: str | None = None,
    shared: bool = False,
) -> ExportReport:
    """Write base model plus update, with its tokenizer, as ``out``, whole or not at all.

    What is written needs no adapter: the sum of backbone, expert where there is one, and update.
    The model passed is as before when this returns. Weights are rounded once, to the model's
    own dtype; the error of that rounding is stated for every weight, relative to what was added.

    Args:
        delta: base parameter name to update dW of the base weight's shape.
        base: the model the update was made for.
        out: the folder; an earlier export there is replaced with all its shards.
        base_sha256: of the model, with its expert, the update was made for, from ``merge.json``;
            checked if given.
        shared: the update of a weight that the model uses in two places is meant for both.

    Raises:
        InputError: another base model, an update that fits no weight or a tied one, or
            something that is no export at ``out``.
    """
    if base_sha256 is not None and base_sha256 != base.start_sha256:
        raise InputError(
            f"the update was made for a model with hash {base_sha256[:12]}, but {base.label} "
            f"has {base.start_sha256[:12]}; give the same model in the same dtype, and the same "
            "expert"
        )
    whole = OnExpert(delta, base.expert) if base.expert else delta
    if not shared:
        _refuse_tied(whole, base)
    with atomic_folder(out, marker=EXPORT_FILE) as partial:
        tensors = {
            name: _rounding(weight.detach(), whole[name])
            for name, weight in base.model.named_parameters()
            if name in whole
        }
        with applied(base.model, whole) as model, no_progress_bars():
            model.save_pretrained(partial)
        cast(Any, base.tokenizer).save_pretrained(partial)
        report = summarise("model", base.name, dict(sorted(tensors.items())), expert=base.expert)
        write_json(partial / EXPORT_FILE, asdict(report))
    return report


def _rounding(weight: Tensor, update: Tensor) -> ExportedTensor:
    norm = update.double().norm().item()
    exact = weight.double() + update.to(weight.device, torch.float64)
    lost = (exact - patched(weight, update).double()).norm().item()
    return ExportedTensor(norm, lost / norm if norm > 0 else 0.0)


def _refuse_tied(delta: Mapping[str, Tensor], base: LoadedModel) -> None:
    """A weight that the model shares between two places cannot take an update at only one."""
    names: dict[int, list[str]] = {}
    for name, weight in base.model.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), []).append(name)
    for shared in names.values():
        touched = sorted(set(shared) & set(delta))
        if touched and len(shared) > 1:
            raise InputError(
                f"{touched[0]!r} is tied to {', '.join(n for n in shared if n != touched[0])}; "
                "a model folder cannot change one without the other: export an adapter"
            )

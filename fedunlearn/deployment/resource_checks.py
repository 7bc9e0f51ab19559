"""Tests what a node's work needs: the model, memory, and room on its disk."""

import shutil
from pathlib import Path

import torch

from fedunlearn.config import AnyConfig, MpuConfig
from fedunlearn.deployment.findings import Finding, Findings
from fedunlearn.errors import FedUnlearnError
from fedunlearn.models.adapters import LoraSettings, adapted_parameters, attached
from fedunlearn.models.architecture import load_architecture
from fedunlearn.models.loading import LoadedModel, ModelSettings, load_base, resolve_device

_TRAINED = 16  # bytes a trained float32 parameter: itself, its gradient, AdamW's two moments
_STATE = 12  # bytes of it on disk: itself and the two moments
_TIGHT = 0.7
_MEMINFO = Path("/proc/meminfo")


def check_model(config: AnyConfig, wanted: str | None) -> Findings:
    """Load what the node will load, compare its hash, and estimate what the work needs.

    Args:
        config: the run's.
        wanted: the hash that the handshake compares; ``None`` shows this node's.
    """
    try:
        if isinstance(config, MpuConfig):
            architecture = load_architecture(config.reference)
            yield _hash(config.reference, architecture.sha256, wanted)
            text = "a published copy and its training need about 20 bytes a parameter"
            yield Finding("memory", "warning", f"not estimated before a copy has come; {text}")
            return
        base = load_base(ModelSettings(**{**vars(config.model), "device": "cpu"}))
        yield _hash(config.model, base.start_sha256, wanted)
        trained, adapted = count_parameters(base, config.lora)
    except FedUnlearnError as fault:
        yield Finding("model", "fault", str(fault), "put the run's model under the config's path")
        return
    yield _memory(config.model, memory_needed(base, trained=trained, adapted=adapted))
    folder = config.resume.folder
    yield _disk(Path(folder).expanduser() if folder else None, _STATE * trained + 2 * adapted)


def _hash(chosen: ModelSettings, found: str, wanted: str | None) -> Finding:
    if wanted is None:
        text = f"{chosen.path} is there, hash {found}"
        return Finding("model", "warning", text, "compare: --model-sha256 takes another node's")
    if found != wanted.lower():
        text = f"{chosen.path} has hash {found}, expected {wanted}"
        return Finding("model", "fault", text, "install the model that the other nodes have")
    return Finding("model", "ok", f"{chosen.path} has the expected hash {found[:12]}")


def count_parameters(base: LoadedModel, lora: LoraSettings) -> tuple[int, int]:
    """Count an adapter's own parameters, and the entries of the weights it is on.

    Raises:
        InputError: the adapter does not fit the model.
    """
    with attached(base.model, lora, seed=0, expert=base.expert) as adapted:
        trained = sum(one.numel() for one in adapted.parameters() if one.requires_grad)
        names = adapted_parameters(adapted)
    entries = sum(base.model.get_parameter(name).numel() for name in names)
    return trained, entries


def memory_needed(base: LoadedModel, *, trained: int, adapted: int) -> int:
    """Bytes that the weights take, and beside them the larger of training and Fisher pass.

    Activations come on top: they grow with batch size and length, and are not estimated.

    Args:
        base: as loaded.
        trained: parameters of the adapter, trained in float32 with AdamW.
        adapted: entries of the adapted weights, each with a float32 sum in the Fisher pass.
    """
    weights = sum(one.nbytes for one in base.model.parameters())
    return weights + max(_TRAINED * trained, 4 * adapted)


def _memory(chosen: ModelSettings, need: int) -> Finding:
    try:
        device = resolve_device(chosen.device)
    except FedUnlearnError as fault:
        return Finding("memory", "fault", str(fault), "install the GPU's driver and a CUDA PyTorch")
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_memory()
    if free is None:
        return Finding("memory", "warning", f"needs {size(need)}; what is free cannot be told")
    text = f"needs {size(need)} on {device} and activations on top, free are {size(free)}"
    if need > free:
        return Finding(
            "memory", "fault", text, "free some, or take a smaller model or a larger GPU"
        )
    if need > _TIGHT * free:
        return Finding("memory", "warning", text, "gradient_checkpointing makes activations small")
    return Finding("memory", "ok", text)


def _free_memory() -> int | None:
    """What programs may still take of the machine's memory, in bytes, where Linux tells it."""
    if not _MEMINFO.is_file():
        return None
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _disk(folder: Path | None, need: int) -> Finding:
    if folder is None:
        text = "the config keeps no checkpoints (resume.folder), so a killed client starts anew"
        return Finding("disk", "warning", text)
    at = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    free = shutil.disk_usage(at).free
    text = f"checkpoint and summary take {size(2 * need)} in {folder}, free are {size(free)}"
    if 2 * need > free:  # a new checkpoint is whole before the last one goes
        return Finding("disk", "fault", text, "make room, or set resume.folder to another disk")
    return Finding("disk", "ok", text)


def size(count: int) -> str:
    """Write a number of bytes for people."""
    if count < 2**30:
        return f"{count / 2**20:.0f} MiB"
    return f"{count / 2**30:.1f} GiB"

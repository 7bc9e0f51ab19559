"""Loads a causal language model by hub id or folder, and says exactly which one it is."""

import hashlib
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as bars
from transformers.utils.import_utils import is_gguf_available
from transformers.utils.quantization_config import QuantizationMethod

from fedunlearn.data.encoding import Tokenizer
from fedunlearn.errors import InputError
from fedunlearn.models.expert import Expert, expert_on, load_expert
from fedunlearn.settings import settings

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_GGUF = ".gguf"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@settings
class ModelSettings:
    """Which model, in which precision, where.

    Attributes:
        path: hub id or local folder of a transformers causal language model, or a local ``.gguf``
            file of an architecture that transformers reads; its weights are dequantised to
            ``dtype``.
        dtype: of the weights in memory.
        device: ``auto`` takes CUDA when there is one; ``cpu``; ``cuda``, ``cuda:1`` and so on.
        quantization: ``nf4`` trains the adapter on a 4-bit copy (bitsandbytes), with ``dtype``
            for its products; Fisher, merge and evaluation use the model in ``dtype`` all the same.
        expert: folder or hub id of a LoRA adapter that holds what the model was taught. Training
            starts from backbone and expert, evaluation and export build on them; the Fisher is
            that of the backbone alone (appendix C). ``None``: the model is its own start.
        expert_revision: branch, tag or commit of an expert on the hub.
    """

    path: str
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"
    quantization: Literal["nf4"] | None = None
    expert: str | None = None
    expert_revision: str | None = None

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.device):
            raise ValueError(f"device must be auto, cpu, cuda or cuda:<number>, got {self.device}")
        if self.expert_revision is not None and self.expert is None:
            raise ValueError("expert_revision needs an expert")
        if self.quantization and self.path.endswith(_GGUF):
            raise ValueError("quantization needs a model folder or hub id, not a .gguf file")


@dataclass(frozen=True)
class LoadedModel:
    """A base model that several jobs share and none may change.

    Attributes:
        model: in evaluation mode, no weight requires a gradient.
        tokenizer: with a pad token (the end-of-sequence token where the model has none).
        name: the path or hub id it came from.
        sha256: :func:`fingerprint` at loading time, of the backbone alone.
        settings: it was loaded by; ``None`` if it was made in memory.
        expert: what was taught to the backbone before; ``None`` if nothing was. It is not on
            ``model``, whose weights are the backbone's.
    """

    model: PreTrainedModel
    tokenizer: Tokenizer
    name: str
    sha256: str
    settings: ModelSettings | None = None
    expert: Expert | None = None

    @property
    def label(self) -> str:
        """What training starts from, for people."""
        return self.name if self.expert is None else f"{self.name} with expert {self.expert.name}"

    @property
    def start_sha256(self) -> str:
        """Hash of what training starts from: of the weights, and of the expert where one is on."""
        if self.expert is None:
            return self.sha256
        return hashlib.sha256(f"{self.sha256}+{self.expert.sha256}".encode()).hexdigest()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device


def load_base(chosen: ModelSettings) -> LoadedModel:
    """Load model and tokenizer, frozen, in evaluation mode, and the expert beside them.

    Raises:
        InputError: there is no such model or expert, it cannot be loaded, or the two do not fit;
            the text says why.
    """
    with loading(chosen) as source:
        tokenizer = AutoTokenizer.from_pretrained(**source)
        # as Any: its type has no word of the pair that `output_loading_info` makes of it
        model, loaded = cast(Any, AutoModelForCausalLM).from_pretrained(
            **source, dtype=DTYPES[chosen.dtype], output_loading_info=True
        )
    if missing := sorted(loaded["missing_keys"]):
        raise InputError(
            f"model {chosen.path!r} lacks {len(missing)} of its weights, e.g. {missing[0]!r}; "
            "they would be random. Get the whole model"
        )
    _forget_gguf(model)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.requires_grad_(False).train(False).to(resolve_device(chosen.device))
    expert = None
    if chosen.expert is not None:
        expert = load_expert(chosen.expert, chosen.expert_revision)
        with expert_on(model, expert):
            pass  # it fits
    digest, words = fingerprint(model), cast(Tokenizer, tokenizer)
    return LoadedModel(model, words, chosen.path, digest, settings=chosen, expert=expert)


@contextmanager
def loading(chosen: ModelSettings) -> Iterator[dict[str, Any]]:
    """Provide the arguments by which ``from_pretrained`` finds the model.

    Raises:
        InputError: the block could not load it; the text says why.
    """
    try:
        with no_progress_bars():
            yield _source(Path(chosen.path).expanduser())
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, struct.error) as fault:
        raise InputError(f"model {chosen.path!r} cannot be loaded: {fault}") from fault


def _source(path: Path) -> dict[str, Any]:
    if path.suffix != _GGUF:
        return {"pretrained_model_name_or_path": str(path)}
    if not path.is_file():
        raise OSError("there is no such file")
    if not is_gguf_available():
        raise OSError("reading a GGUF file needs the package gguf; install it")
    return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}


def _forget_gguf(model: Any) -> None:
    """Dequantised, the model is like any other; transformers would refuse to save it."""
    if getattr(model, "quantization_method", None) == QuantizationMethod.GGUF:
        del model.config.quantization_config, model.hf_quantizer, model.quantization_method
        model.is_quantized = False


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers' own bars off the terminal, which the caller may be drawing on."""
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()  # type: ignore[no-untyped-call]


def resolve_device(name: str) -> torch.device:
    """Turn ``auto`` into CUDA where there is one, else the CPU."""
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"model.device: {name} asked, but PyTorch finds no CUDA; use auto or cpu")
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def fingerprint(model: torch.nn.Module) -> str:
    """SHA-256 over names, dtypes, shapes and bytes of all parameters; tied ones count once."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name}:{parameter.dtype}:{tuple(parameter.shape)}".encode())
        digest.update(_raw_bytes(parameter.detach()))
    return digest.hexdigest()


def _raw_bytes(tensor: torch.Tensor) -> Any:
    flat = tensor.cpu().contiguous().view(-1).view(torch.uint8)
    return flat.numpy().data

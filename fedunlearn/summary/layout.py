"""Names: from PEFT's adapter keys to base parameters and back, and the digest of a layout."""

import hashlib
import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from fedunlearn.errors import SummaryError

_PREFIX = "base_model.model."
_KEY = re.compile(r"base_model\.model\.(?P<module>[A-Za-z0-9_.-]+)\.lora_[AB]\.weight")
_SUFFIX = ".weight"


def parameter_name(key: str) -> str:
    """Name the base parameter that an adapter tensor belongs to.

    Example:
        >>> parameter_name("base_model.model.model.layers.5.mlp.down_proj.lora_A.weight")
        'model.layers.5.mlp.down_proj.weight'

    Raises:
        SummaryError: not a key that PEFT saves for LoRA on a linear module, e.g. because the
            adapter's own name was left in it.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        raise SummaryError(
            f"adapter tensor {key[:200]!r} is not named {_PREFIX}<module>.lora_A.weight or "
            ".lora_B.weight, as PEFT saves LoRA on linear modules"
        )
    return match["module"] + _SUFFIX


def adapter_keys(parameter: str) -> tuple[str, str]:
    """Name the (A, B) tensors of a base parameter's adapter; inverts :func:`parameter_name`.

    Raises:
        SummaryError: ``parameter`` is not the weight of a module.
    """
    stem = _PREFIX + module_name(parameter)
    return f"{stem}.lora_A.weight", f"{stem}.lora_B.weight"


def module_name(parameter: str) -> str:
    """Name the module whose weight ``parameter`` is.

    Raises:
        SummaryError: the name does not end in ``.weight``.
    """
    if not parameter.endswith(_SUFFIX) or parameter == _SUFFIX:
        raise SummaryError(f"{parameter[:200]!r} does not name the weight of a module")
    return parameter.removesuffix(_SUFFIX)


def layout_digest(fisher: Mapping[str, Tensor]) -> str:
    """Digest which weights a summary covers: SHA-256 over sorted ``name:shape:dtype`` lines.

    Shape and dtype are those of the Fisher tensors as stored, e.g.
    ``model.layers.5.mlp.down_proj.weight:4096x14336:bfloat16``, so that anybody who holds the
    summary can recompute it.
    """
    return digest_lines(layout_line(name, tensor) for name, tensor in fisher.items())


def layout_line(name: str, tensor: Tensor) -> str:
    """Write one weight of a layout as :func:`layout_digest` reads it."""
    shape = "x".join(map(str, tensor.shape))
    return f"{name}:{shape}:{str(tensor.dtype).removeprefix('torch.')}"


def digest_lines(lines: Iterable[str]) -> str:
    """SHA-256 over the sorted lines."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()

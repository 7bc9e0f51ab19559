"""Reads PEFT's ``adapter_config.json``: ranks, scalings, and what cannot be merged.

A merge sees a LoRA adapter as one dense update per weight, ``s * B @ A``. Every setting under
which PEFT's adapter is something else (DoRA, trained biases, fully trained modules, an
initialisation that changes the base weights) is refused by name. A setting this module does not
know is refused too, unless it is switched off: it could change what the factors mean.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fedunlearn.errors import InputError
from fedunlearn.names import shown

Number = TypeVar("Number", int, float)

_READ = frozenset(
    {"peft_type", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"}
    | {"fan_in_fan_out", "init_lora_weights", "bias"}
)
_WITHOUT_EFFECT = frozenset(
    {"task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision"}
    | {"inference_mode", "target_modules", "exclude_modules", "lora_dropout"}
    | {"layers_to_transform", "layers_pattern", "megatron_core", "qalora_group_size"}
    | {"eva_config", "ensure_weight_tying", "runtime_config"}
)
_LARGEST_ALPHA = 1e6
_HARMLESS_INITS = (True, False, None, "gaussian", "eva", "orthogonal")


@dataclass(frozen=True)
class LoraLayout:
    """Rank and scaling of every adapted module.

    Attributes:
        rank: default rank r.
        alpha: default numerator of the scaling.
        rank_pattern: regular expression on the end of a module's name, to its rank.
        alpha_pattern: the same, to its alpha.
        use_rslora: divide by sqrt(r) instead of r.
        transposed: base weights are stored as (d_in, d_out), PEFT's ``fan_in_fan_out``.
    """

    rank: int
    alpha: float
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    use_rslora: bool
    transposed: bool

    def rank_of(self, module: str) -> int:
        """Rank of a module's adapter."""
        return _matching(self.rank_pattern, module, self.rank)

    def scaling_of(self, module: str) -> float:
        """Scaling s of a module's task vector ``s * B @ A``: alpha/r, or alpha/sqrt(r) (rsLoRA)."""
        alpha, rank = _matching(self.alpha_pattern, module, self.alpha), self.rank_of(module)
        return alpha / (math.sqrt(rank) if self.use_rslora else rank)


def read_lora(config: Mapping[str, Any]) -> LoraLayout:
    """Read the content of an ``adapter_config.json``.

    Raises:
        InputError: no plain LoRA, or a value of the wrong kind; the text names the setting.
    """
    _refuse_other_adapters(config)
    return LoraLayout(
        rank=_rank(config.get("r"), "r"),
        alpha=_alpha(config.get("lora_alpha"), "lora_alpha"),
        rank_pattern={
            key: _rank(value, f"rank_pattern[{shown(key)}]")
            for key, value in _pattern(config, "rank_pattern").items()
        },
        alpha_pattern={
            key: _alpha(value, f"alpha_pattern[{shown(key)}]")
            for key, value in _pattern(config, "alpha_pattern").items()
        },
        use_rslora=_flag(config, "use_rslora"),
        transposed=_flag(config, "fan_in_fan_out"),
    )


def refuse_other_layout(config: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse an adapter that is not the one asked for, before anything of it is evaluated.

    Patterns are regular expressions, and one written in bad faith may take for ever to match: a
    client's are compared with the server's own, and never matched.

    Args:
        config: content of an ``adapter_config.json``, whoever wrote it.
        asked: ``r``, ``lora_alpha``, ``rank_pattern``, ``alpha_pattern`` and ``use_rslora``.

    Raises:
        InputError: one differs; the text names it.
    """
    for key, wanted in asked.items():
        got = config.get(key) or type(wanted)()
        if got != wanted:
            raise InputError(f"adapter has {key} {shown(got)}, asked was {shown(wanted)}")


def _refuse_other_adapters(config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise InputError(f"adapter has peft_type {shown(config.get('peft_type'))}, not 'LORA'")
    if config.get("bias", "none") != "none":
        raise InputError(f"adapter trains biases (bias={shown(config['bias'])}); use bias='none'")
    if (init := config.get("init_lora_weights", True)) not in _HARMLESS_INITS:
        raise InputError(
            f"adapter starts from init_lora_weights={shown(init)}, which changes the base "
            "weights, so that B @ A is not the update; use the default"
        )
    for key in sorted(map(str, config.keys() - _READ - _WITHOUT_EFFECT)):
        if config[key]:
            raise InputError(
                f"adapter has {shown(key)} = {shown(config[key])}, which a merge of plain LoRA "
                "factors cannot honour; train without it"
            )


def _matching(pattern: Mapping[str, Number], module: str, default: Number) -> Number:
    """Resolve a pattern as PEFT does: the first key that matches whole name parts at the end."""
    for key, value in pattern.items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return default


def _pattern(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    pattern = config.get(name) or {}
    if not isinstance(pattern, Mapping):
        raise InputError(f"adapter has {name} {shown(pattern)}, expected names and numbers")
    for key in pattern:
        try:
            re.compile(rf"(.*\.)?({key})$")
        except re.error as fault:
            text = f"adapter has {name} {shown(key)}, which is no regular expression: {fault}"
            raise InputError(text) from None
    return pattern


def _flag(config: Mapping[str, Any], name: str) -> bool:
    value = config.get(name, False)
    if not isinstance(value, bool):
        raise InputError(f"adapter has {name} {shown(value)}, expected true or false")
    return value


def _rank(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"adapter has {name} {shown(value)}, expected a rank of at least 1")
    return value


def _alpha(value: Any, name: str) -> float:
    # The bound comes first: math.isfinite fails on an integer that no float can hold.
    good = not isinstance(value, bool) and isinstance(value, int | float)
    if not good or not -_LARGEST_ALPHA <= value <= _LARGEST_ALPHA:
        raise InputError(f"adapter has {name} {shown(value)}, expected a finite number")
    return float(value)

"""The family table: which parameter of which architecture plays which part in a symmetry.

A part says on which axis of a module's weight and bias heads or channels lie. Whatever the table
does not name is refused, never guessed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Part = Literal["q", "k", "v", "o", "qkv", "qkv_by_head", "up", "up_pair", "down", "plain"]
"""What a module is to the symmetries of its layer.

``q``, ``k``, ``v``: their outputs are heads (also a norm over all heads together); ``o``: its
inputs are heads; ``qkv``: outputs are all queries, then keys, then values; ``qkv_by_head``: query,
key and value of one head lie together; ``up``: outputs are FFN channels; ``up_pair``: twice, gate
first; ``down``: inputs are FFN channels; ``plain``: acts on the residual stream or inside each
head, and no symmetry moves it.
"""


def _everything(config: Any, head_dim: int) -> int:
    """Rotary places of a head where the family rotates all of them."""
    factor = (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0)
    if factor != 1.0:
        raise ValueError(f"partial_rotary_factor {factor} is not known for it")
    return head_dim


def _partial(config: Any, head_dim: int) -> int:
    """Rotary places of a head under partial rotary embedding, as transformers rounds them."""
    return int(head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))


def _none(config: Any, head_dim: int) -> int:
    """No rotary embedding."""
    return 0


def _no_norm(config: Any) -> str | None:
    return None


def _per_head_norm(config: Any) -> str | None:
    return "the model normalises them with a learned scale"


def _stablelm_norm(config: Any) -> str | None:
    return _per_head_norm(config) if config.qk_layernorm else None


@dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes:
        layers: what the layers' names begin with, up to the layer's number.
        modules: name inside a layer to part.
        embeddings: names of the modules.
        final_norm: likewise.
        head: likewise.
        rotary: number of rotary places of a head, from configuration and head dimension; raises
            ``ValueError`` for what the family does not know.
        norm: why queries and keys cannot be turned; ``None``: they can.
        own_norms: every head has a norm of its own, so that heads cannot change places either
            where there is a norm.
        transposed: weights are stored as (d_in, d_out) (Conv1D).
        forbidden: configuration values that change the computation, with the one that is known.
    """

    layers: str
    modules: Mapping[str, Part]
    embeddings: tuple[str, ...] = ("model.embed_tokens",)
    final_norm: str = "model.norm"
    head: str = "lm_head"
    rotary: Callable[[Any, int], int] = _everything
    norm: Callable[[Any], str | None] = _no_norm
    own_norms: bool = False
    transposed: bool = False
    forbidden: Mapping[str, object] | None = None


_ATTENTION: dict[str, Part] = {
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.o_proj": "o",
}
_GATED: dict[str, Part] = {
    "mlp.gate_proj": "up",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}
_NORMS: dict[str, Part] = {"input_layernorm": "plain", "post_attention_layernorm": "plain"}
_MORE_NORMS: dict[str, Part] = {
    "pre_feedforward_layernorm": "plain",
    "post_feedforward_layernorm": "plain",
}
_HEAD_NORMS: dict[str, Part] = {"self_attn.q_norm": "plain", "self_attn.k_norm": "plain"}
_LLAMA: dict[str, Part] = {**_ATTENTION, **_GATED, **_NORMS}

FAMILIES: Mapping[str, Family] = {
    "llama": Family("model.layers", _LLAMA),
    "mistral": Family("model.layers", _LLAMA),
    "qwen2": Family("model.layers", _LLAMA),
    "qwen3": Family("model.layers", {**_LLAMA, **_HEAD_NORMS}, norm=_per_head_norm),
    "gemma2": Family("model.layers", {**_LLAMA, **_MORE_NORMS}),
    "gemma3_text": Family(
        "model.layers",
        {**_LLAMA, **_MORE_NORMS, **_HEAD_NORMS},
        rotary=_none,  # nothing is turned, so that its two embeddings do not matter
        norm=_per_head_norm,
    ),
    "olmo2": Family(
        "model.layers",
        {
            **_ATTENTION,
            **_GATED,
            "self_attn.q_norm": "q",
            "self_attn.k_norm": "k",
            "post_attention_layernorm": "plain",
            "post_feedforward_layernorm": "plain",
        },
        norm=_per_head_norm,
    ),
    "stablelm": Family(
        "model.layers",
        {
            **_LLAMA,
            "self_attn.q_layernorm.norms.*": "plain",
            "self_attn.k_layernorm.norms.*": "plain",
        },
        rotary=_partial,
        norm=_stablelm_norm,
        own_norms=True,
    ),
    "phi3": Family(
        "model.layers",
        {
            **_NORMS,
            "self_attn.qkv_proj": "qkv",
            "self_attn.o_proj": "o",
            "mlp.gate_up_proj": "up_pair",
            "mlp.down_proj": "down",
        },
        rotary=_partial,
    ),
    "gpt_neox": Family(
        "gpt_neox.layers",
        {
            **_NORMS,
            "attention.query_key_value": "qkv_by_head",
            "attention.dense": "o",
            "mlp.dense_h_to_4h": "up",
            "mlp.dense_4h_to_h": "down",
        },
        embeddings=("gpt_neox.embed_in",),
        final_norm="gpt_neox.final_layer_norm",
        rotary=_partial,
    ),
    "gpt2": Family(
        "transformer.h",
        {
            "ln_1": "plain",
            "ln_2": "plain",
            "attn.c_attn": "qkv",
            "attn.c_proj": "o",
            "mlp.c_fc": "up",
            "mlp.c_proj": "down",
        },
        embeddings=("transformer.wte", "transformer.wpe"),
        final_norm="transformer.ln_f",
        rotary=_none,
        transposed=True,
        forbidden={"add_cross_attention": False},
    ),
}
"""By transformers' ``model_type``."""

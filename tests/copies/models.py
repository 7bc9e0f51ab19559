"""Pico models of every family whose copies are supported, with biases and norms that matter."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import transformers as hf
from torch import Tensor

from fedunlearn.copies import CopyPlan, plan_copies

HEADS = {"6/2": (6, 2), "4/4": (4, 4), "4/1": (4, 1)}
_WIDTH = 8


def _grouped(heads: tuple[int, int], **more: Any) -> dict[str, Any]:
    return {**_same(heads), "num_key_value_heads": heads[1], **more}


def _same(heads: tuple[int, int]) -> dict[str, Any]:
    return {
        "vocab_size": 96,
        "hidden_size": _WIDTH * heads[0],
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": heads[0],
        "max_position_embeddings": 64,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
    }


_LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_PARTIAL = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}

CONFIGS: dict[str, Any] = {
    "llama": lambda h: hf.LlamaConfig(
        **_grouped(h, attention_bias=True, mlp_bias=True, rope_parameters=_LLAMA_3)
    ),
    "smollm": lambda h: hf.LlamaConfig(**_grouped(h, tie_word_embeddings=True)),
    "mistral": lambda h: hf.MistralConfig(**_grouped(h, sliding_window=8)),
    "qwen2": lambda h: hf.Qwen2Config(**_grouped(h)),
    "qwen3": lambda h: hf.Qwen3Config(**_grouped(h, head_dim=16, attention_bias=True)),
    "gemma2": lambda h: hf.Gemma2Config(**_grouped(h, head_dim=16, sliding_window=8)),
    "gemma3": lambda h: hf.Gemma3TextConfig(**_grouped(h, head_dim=16, sliding_window=8)),
    "olmo2": lambda h: hf.Olmo2Config(**_grouped(h, attention_bias=True)),
    "stablelm": lambda h: hf.StableLmConfig(
        **_grouped(h, use_qkv_bias=True, rope_parameters=_PARTIAL)
    ),
    "stablelm-norm": lambda h: hf.StableLmConfig(**_grouped(h, qk_layernorm=True)),
    "phi3": lambda h: hf.Phi3Config(**_grouped(h, sliding_window=8)),
    "phi3-partial": lambda h: hf.Phi3Config(**_grouped(h, rope_parameters=_PARTIAL)),
    "gpt-neox": lambda h: hf.GPTNeoXConfig(**_same(h), rope_parameters=_PARTIAL),
    "gpt2": lambda h: hf.GPT2Config(
        vocab_size=96,
        n_embd=_WIDTH * h[0],
        n_inner=40,
        n_layer=2,
        n_head=h[0],
        n_positions=64,
        bos_token_id=0,
        eos_token_id=1,
    ),
}
TIED = ("smollm", "gemma2", "gemma3", "gpt2")
NORMED = ("qwen3", "gemma3", "olmo2", "stablelm-norm")


def random_model(name: str, heads: str = "6/2", *, seed: int = 0) -> Any:
    """Every parameter is random and non-zero, biases and norms too; float32, evaluation mode."""
    model = hf.AutoModelForCausalLM.from_config(
        CONFIGS[name](HEADS[heads]), attn_implementation="eager"
    )
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            spread = 0.25 if weight.dim() > 1 else 0.5
            weight.copy_(torch.randn(weight.shape, generator=draw) * spread)
            if "norm" in key or "ln_" in key:
                weight += 1.0
    return model.eval()


@cache
def shared_model(name: str, heads: str = "6/2") -> Any:
    """One that no test may change."""
    return random_model(name, heads).requires_grad_(False)


def parameters(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach() for name, weight in model.named_parameters()}


def plan_of(model: Any) -> CopyPlan:
    return plan_copies(model.config, shapes_of(model.state_dict()))


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def moved(weights: Mapping[str, Tensor], *, by: float, seed: int = 1) -> dict[str, Tensor]:
    """A reference model: every tensor differs by noise of that size."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: weight + by * torch.randn(weight.shape, generator=draw)
        for name, weight in weights.items()
    }

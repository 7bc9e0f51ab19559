"""A Llama of 2 layers and hidden size 32, real PEFT adapters on it, and summaries of them."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from fedunlearn.roles import Role
from fedunlearn.summary import ClientSummary, SummaryMeta, layout_digest

BASE_SHA256 = "ab" * 32
IDS = torch.arange(24).reshape(2, 12)
DOWN_0 = "model.layers.0.mlp.down_proj.weight"
DOWN_1 = "model.layers.1.mlp.down_proj.weight"


def pico_llama(*, seed: int = 0, tied: bool = False) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def logits(model: torch.nn.Module) -> Tensor:
    with torch.no_grad():
        return model(IDS).logits


def trained_adapter(
    folder: Path, *, seed: int = 1, adapter_name: str = "default", **lora: Any
) -> Tensor:
    """Save an adapter with random A and B by stock PEFT; return the adapted model's logits."""
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["down_proj"], **lora}
    adapted = get_peft_model(
        pico_llama(), LoraConfig(task_type="CAUSAL_LM", **settings), adapter_name=adapter_name
    ).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn(weight.shape, generator=draw) * 0.1)
    adapted.save_pretrained(folder)
    return logits(adapted)


@cache
def _saved(seed: int, lora: str) -> tuple[str, Mapping[str, Tensor]]:
    with tempfile.TemporaryDirectory() as name:
        trained_adapter(Path(name), seed=seed, **json.loads(lora))
        config = (Path(name) / "adapter_config.json").read_text()
        return config, load_file(Path(name) / "adapter_model.safetensors")


def fishers(shapes: Mapping[str, tuple[int, ...]], *, seed: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(shape, generator=draw).pow(4).to(torch.bfloat16)
        for name, shape in sorted(shapes.items())
    }


def pico_summary(
    client_id: str = "bio-0",
    role: Role = "forget",
    domain: str = "biology",
    *,
    seed: int = 1,
    **lora: Any,
) -> ClientSummary:
    config, adapter = _saved(seed, json.dumps(lora, sort_keys=True))
    shapes = {
        name.removesuffix(".lora_A.weight").removeprefix("base_model.model.") + ".weight": (
            adapter[name.replace("lora_A", "lora_B")].shape[0],
            weight.shape[1],
        )
        for name, weight in adapter.items()
        if "lora_A" in name
    }
    fisher = fishers(shapes, seed=seed + 1000)
    meta = SummaryMeta(
        client_id=client_id,
        role=role,
        domain=domain,
        objective="npo" if role == "forget" else "retain_nll",
        num_examples=10 + seed,
        base_model="pico",
        base_model_sha256=BASE_SHA256,
        fisher={"num_sequences": 20, "max_length": 512, "dtype": "bfloat16", "reference": "base"},
        training={"steps": 3, "final_loss": 0.25, "stopped": None},
        layout_digest=layout_digest(fisher),
    )
    return ClientSummary(
        meta=meta,
        adapter_config=json.loads(config),
        adapter={name: weight.clone() for name, weight in adapter.items()},
        fisher=fisher,
    )


def pico_round() -> list[ClientSummary]:
    """Two forget domains, the first with two clients, and two retain clients."""
    clients: list[tuple[str, Role, str]] = [
        ("bio-0", "forget", "biology"),
        ("bio-1", "forget", "biology"),
        ("law-0", "forget", "law"),
        ("keep-0", "retain", "general"),
        ("keep-1", "retain", "cooking"),
    ]
    return [pico_summary(*client, seed=seed) for seed, client in enumerate(clients, 1)]


def changed(summary: ClientSummary, **meta: Any) -> ClientSummary:
    """A copy with other values in its meta, and containers of its own."""
    return ClientSummary(
        meta=replace(summary.meta, **meta),
        adapter_config=dict(summary.adapter_config),
        adapter=dict(summary.adapter),
        fisher=dict(summary.fisher),
    )

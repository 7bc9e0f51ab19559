"""Writes a Llama-architecture model as a GGUF file, as llama.cpp's converter does."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fedunlearn.models.loading import LoadedModel

_BLOCK = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(base: LoadedModel, file: Path) -> Path:
    """Float32, embeddings tied, with a byte-level BPE tokenizer and its chat template."""
    gguf = pytest.importorskip("gguf")
    writer, config = gguf.GGUFWriter(str(file), "llama"), base.model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, base.tokenizer, gguf)
    for name, weight in _tensors(base):
        writer.add_tensor(name, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add_tokenizer(writer: Any, tokenizer: Any, gguf: Any) -> None:
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    ordered = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    special = set(tokenizer.all_special_tokens)
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(ordered)
    writer.add_token_types([kinds.CONTROL if t in special else kinds.NORMAL for t in ordered])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)


def _tensors(base: LoadedModel) -> list[tuple[str, Tensor]]:
    config, found = base.model.config, []
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, weight in base.model.named_parameters():
        if name == "model.embed_tokens.weight":
            found.append(("token_embd.weight", weight))
        elif name == "model.norm.weight":
            found.append(("output_norm.weight", weight))
        else:
            _, _, block, rest = name.split(".", 3)
            role = _BLOCK[rest.removesuffix(".weight")]
            if role in heads:  # rotary halves become neighbours
                parts = weight.view(heads[role], 2, -1, weight.shape[1])
                weight = parts.transpose(1, 2).reshape(weight.shape)
            found.append((f"blk.{block}.{role}.weight", weight))
    return found

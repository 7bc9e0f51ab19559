"""A pico model of every architecture that is supported by name, random, from its config alone."""

from pathlib import Path
from typing import Any

import torch
import transformers as hf
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from fedunlearn.models.tiny import train_tokenizer
from tests.world import questions

VOCABULARY = 400
_TOKENS = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
_BLOCKS = {
    **_TOKENS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
_GROUPED = {**_BLOCKS, "num_key_value_heads": 2}
_LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_GPT_2 = {"n_embd": 32, "n_inner": 48, "n_layer": 2, "n_head": 4, "n_positions": 256}

CONFIGS: dict[str, Any] = {
    "llama-3": lambda: hf.LlamaConfig(**_GROUPED, rope_parameters=_LLAMA_3),
    "mistral": lambda: hf.MistralConfig(**_GROUPED, sliding_window=16),
    "qwen-2": lambda: hf.Qwen2Config(**_GROUPED),
    "qwen-3": lambda: hf.Qwen3Config(**_GROUPED, head_dim=16),
    "gemma-2": lambda: hf.Gemma2Config(**_GROUPED, head_dim=16, sliding_window=16),
    "gemma-3": lambda: hf.Gemma3TextConfig(**_GROUPED, head_dim=16, sliding_window=16),
    "phi-3": lambda: hf.Phi3Config(**_GROUPED),
    "olmo-2": lambda: hf.Olmo2Config(**_GROUPED),
    "gpt-neox": lambda: hf.GPTNeoXConfig(**_BLOCKS),
    "gpt-2": lambda: hf.GPT2Config(**_TOKENS, **_GPT_2),
}


def random_model(family: str, *, seed: int = 0) -> PreTrainedModel:
    """Float32, frozen, in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = hf.AutoModelForCausalLM.from_config(CONFIGS[family]())
    return model.requires_grad_(False).eval()  # type: ignore[no-any-return]


def tokenizer(*, template: bool = True, pad: bool = True) -> PreTrainedTokenizerFast:
    """With or without a chat template; without a pad token, loading makes it the end token."""
    texts = [text for q in questions() for text in (q.question, q.answer)]
    made = train_tokenizer(texts, vocabulary=VOCABULARY)
    if not template:
        made.chat_template = None
    if not pad:
        made.pad_token = None
    return made


def saved(family: str, folder: Path, *, template: bool = True, pad: bool = True) -> Path:
    """The model and its tokenizer as a folder that transformers loads."""
    random_model(family).save_pretrained(folder)
    tokenizer(template=template, pad=pad).save_pretrained(folder)
    return folder

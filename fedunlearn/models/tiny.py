"""A Llama-architecture model of about a million parameters, with its own tokenizer.

Small enough to learn a few hundred facts by heart on two CPU cores in a minute, and in every
other respect a stock transformers model.
"""

from collections.abc import Iterable

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from fedunlearn.settings import settings

BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
USER, ASSISTANT = "<|user|>", "<|assistant|>"
_SMALLEST_VOCABULARY = 256 + 5
_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|end|>"
    "{% else %}<|user|>{{ message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@settings
class TinySize:
    """Shape of the tiny model; the defaults make 918,656 parameters."""

    hidden_size: int = 128
    layers: int = 4
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: int = 384
    vocabulary: int = 1024

    def __post_init__(self) -> None:
        if min(self.layers, self.heads, self.key_value_heads, self.feed_forward) < 1:
            raise ValueError("layers, heads, key_value_heads and feed_forward must be >= 1")
        if self.hidden_size < 1 or self.hidden_size % (2 * self.heads):
            raise ValueError(f"hidden_size must be a multiple of twice heads, got {self}")
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads must be a multiple of key_value_heads, got {self}")
        if self.vocabulary < _SMALLEST_VOCABULARY:
            raise ValueError(f"vocabulary must be >= {_SMALLEST_VOCABULARY}, for bytes and roles")


def train_tokenizer(texts: Iterable[str], *, vocabulary: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer with a chat template on ``texts``."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[BEGIN, END, PAD, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast, size: TinySize, *, seed: int
) -> LlamaForCausalLM:
    """Build the untrained model, float32, tied embeddings; weights drawn from ``seed``."""
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden_size,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)

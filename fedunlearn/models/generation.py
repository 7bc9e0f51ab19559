"""Greedy answers, batch by batch."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from fedunlearn.data.encoding import Tokenizer


@torch.no_grad()
def generate_greedily(
    model: PreTrainedModel,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
) -> list[str]:
    """Generate one greedy answer a prompt, special tokens removed.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        prompts: token ids, left-padded here; the mask comes from their lengths.
        max_new_tokens: at most this many tokens an answer.
    """
    pad_id = cast(int, tokenizer.pad_token_id)
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad_id] * (longest - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    generated = cast(Any, model).generate(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=1,
        pad_token_id=pad_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    answers = cast(Any, tokenizer).batch_decode(generated[:, longest:], skip_special_tokens=True)
    return [answer.strip() for answer in answers]

"""From records to token ids; training, Fisher and evaluation all come through here.

One prompt builder serves the three, so that they see identical prompt ids. Labels mark the
target tokens; everything else is ``IGNORED``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

import torch
from torch import Tensor

from fedunlearn.data.records import Passage, Record
from fedunlearn.errors import DataError
from fedunlearn.objectives.likelihood import IGNORED

_DATE = date(2026, 1, 1)  # what chat templates are told, so that prompts are the same every day
_DATE_PARTS = ("%d", "%m", "%b", "%B", "%Y", "%y", "%a", "%A", "%j", "%H", "%M", "%S", "%p", "%I")


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that encoding needs."""

    chat_template: str | None
    bos_token_id: int | None
    eos_token_id: int | None
    pad_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``."""

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: Any) -> Any:
        """The conversation in the model's own format."""


@dataclass(frozen=True)
class Example:
    """One sequence.

    Attributes:
        input_ids: prompt and answer, or the passage.
        labels: same length; ``IGNORED`` on the prompt. ``labels[t]`` is the target at ``t``,
            predicted from the tokens before it.
    """

    input_ids: tuple[int, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """Right-padded examples.

    Attributes:
        input_ids: (B, T) int64.
        attention_mask: (B, T) int64, 1 on real tokens. It comes from lengths, never from
            comparing ids with the pad id, so ``pad == eos`` is harmless.
        labels: (B, T) int64, ``IGNORED`` where there is no target.
        indices: positions of the examples in the dataset, for cached reference values.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    indices: tuple[int, ...] = ()

    def to(self, device: torch.device) -> "Batch":
        """Move every tensor."""
        return Batch(
            self.input_ids.to(device),
            self.attention_mask.to(device),
            self.labels.to(device),
            self.indices,
        )


def encode_prompt(tokenizer: Tokenizer, question: str) -> list[int]:
    """Token ids up to where the answer begins, with exactly one BOS if the tokenizer has one."""
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            tokenize=False,
            add_generation_prompt=True,
            chat_template=_dated(tokenizer.chat_template),
            date_string=_DATE.strftime("%d %b %Y"),
        )
    else:
        text = f"Question: {question}\nAnswer:"
    return _with_one_bos(tokenizer, tokenizer.encode(text, add_special_tokens=False))


def _dated(template: str | None) -> str | None:
    """Give a chat template that reads the clock a clock that stands still; ``None``: as it is.

    A macro, since transformers hands templates no functions.
    """
    if not isinstance(template, str) or "strftime_now" not in template:
        return None
    parts = "".join(f"|replace('{part}', '{_DATE.strftime(part)}')" for part in _DATE_PARTS)
    return f"{{%- macro strftime_now(format) %}}{{{{ format{parts} }}}}{{% endmacro -%}}{template}"


def encode_answer(tokenizer: Tokenizer, answer: str) -> list[int]:
    """Token ids of the answer and the end-of-sequence token the model must learn to emit."""
    text = answer if tokenizer.chat_template else f" {answer}"
    ids = tokenizer.encode(text, add_special_tokens=False)
    return ids if tokenizer.eos_token_id is None else [*ids, tokenizer.eos_token_id]


def encode_record(tokenizer: Tokenizer, record: Record, *, max_length: int) -> Example:
    """Encode one record, truncated on the right to ``max_length`` tokens.

    Raises:
        DataError: no target token is left after truncation.
    """
    if isinstance(record, Passage):
        ids = _with_one_bos(tokenizer, tokenizer.encode(record.text, add_special_tokens=False))
        ids = ids[:max_length]
        labels = [IGNORED, *ids[1:]]
    else:
        prompt = encode_prompt(tokenizer, record.question)
        answer = encode_answer(tokenizer, record.answer)
        ids = [*prompt, *answer][:max_length]
        labels = [*[IGNORED] * len(prompt), *answer][:max_length]
    if all(label == IGNORED for label in labels):
        # The text may reach the server in a client's failure: it says nothing of what is recorded.
        raise DataError(
            f"no target token is left within max_length={max_length} of a record whose prompt has "
            f"{sum(label == IGNORED for label in labels)} tokens or more; raise max_length or drop "
            "the record"
        )
    return Example(tuple(ids), tuple(labels))


def collate(examples: Sequence[Example], *, pad_id: int, indices: Sequence[int] = ()) -> Batch:
    """Pad on the right to the longest example."""
    longest = max(len(example.input_ids) for example in examples)

    def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
        return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows])

    return Batch(
        padded([example.input_ids for example in examples], pad_id),
        padded([[1] * len(example.input_ids) for example in examples], 0),
        padded([example.labels for example in examples], IGNORED),
        tuple(indices),
    )


def _with_one_bos(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    bos = tokenizer.bos_token_id
    if bos is None:
        return ids
    while ids[:1] == [bos]:
        ids = ids[1:]
    return [bos, *ids]

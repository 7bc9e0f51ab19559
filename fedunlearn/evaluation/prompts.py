"""From questions to token ids: this package's own prompts, or exactly those of open-unlearning."""

from collections.abc import Sequence
from typing import Any, Literal, cast

from fedunlearn.data.encoding import Example, Tokenizer, encode_answer, encode_prompt
from fedunlearn.errors import DataError
from fedunlearn.objectives.likelihood import IGNORED
from fedunlearn.settings import settings

Shots = Sequence[tuple[str, str]]
"""Questions and answers shown before the question."""


@settings
class PromptSettings:
    """How a question is put.

    Attributes:
        style: ``package``: as this package trains, prompt and answer tokenised apart. ``chat``:
            open-unlearning's, the whole conversation through the model's chat template.
            ``plain``: open-unlearning's for base models, and TOFU's own, the whole text tokenised
            at once, so that an answer's first token may belong to the prompt and is then not
            scored, as there. ``reference``: ``chat`` where the model has a template, else
            ``plain``.
        system_prompt: of ``chat``.
        date: of ``chat``, for templates that ask for one.
        question_start: of ``plain``.
        question_end: likewise.
        answer_start: likewise.
        answer_end: after an answer that is shown before the question.
        max_length: tokens of ``plain`` and of ``package``, the end of sequence aside.
    """

    style: Literal["package", "chat", "plain", "reference"] = "reference"
    system_prompt: str = "You are a helpful assistant."
    date: str = "10 Apr 2025"
    question_start: str = "Question: "
    question_end: str = "\n"
    answer_start: str = "Answer: "
    answer_end: str = "\n\n"
    max_length: int = 512

    def resolved(self, tokenizer: Tokenizer) -> str:
        """The style for a tokenizer."""
        if self.style != "reference":
            return self.style
        return "chat" if tokenizer.chat_template else "plain"


def prompt_ids(
    tokenizer: Tokenizer, question: str, chosen: PromptSettings, *, shots: Shots = ()
) -> list[int]:
    """Token ids up to where the answer is to be generated."""
    match chosen.resolved(tokenizer):
        case "package":
            return encode_prompt(tokenizer, _shown(shots, question))
        case "chat":
            return _chat(tokenizer, question, None, chosen, shots)
        case _:
            return _whole(tokenizer, _plain(question, chosen, shots), chosen.max_length)


def opened_ids(
    tokenizer: Tokenizer, question: str, opening: str, chosen: PromptSettings
) -> list[int]:
    """Token ids up to where the answer goes on that begins with ``opening``; it may be empty."""
    if not opening:
        return prompt_ids(tokenizer, question, chosen)
    if chosen.resolved(tokenizer) == "plain":
        return _whole(tokenizer, _plain(question, chosen, ()) + opening, chosen.max_length)
    begun = encode_answer(tokenizer, opening)
    end = tokenizer.eos_token_id
    return [*prompt_ids(tokenizer, question, chosen), *(begun if end is None else begun[:-1])]


def scored(
    tokenizer: Tokenizer,
    question: str,
    answer: str,
    chosen: PromptSettings,
    *,
    shots: Shots = (),
) -> Example:
    """Prompt and answer, with the answer and the end of sequence as targets.

    Raises:
        DataError: no token of the answer is left to score; the text names the question.
    """
    prompt = prompt_ids(tokenizer, question, chosen, shots=shots)
    match chosen.resolved(tokenizer):
        case "package":
            ids = [*prompt, *encode_answer(tokenizer, answer)][: chosen.max_length]
        case "chat":
            ids = _ended(tokenizer, _chat(tokenizer, question, answer, chosen, shots))
        case _:
            text = _plain(question, chosen, shots) + answer
            ids = _ended(tokenizer, _whole(tokenizer, text, chosen.max_length))
    if len(ids) <= len(prompt):
        raise DataError(
            f"no token of the answer to {question[:80]!r} is left to score: it is empty, or does "
            f"not fit into max_length={chosen.max_length}"
        )
    return Example(tuple(ids), (*[IGNORED] * len(prompt), *ids[len(prompt) :]))


def passage(
    tokenizer: Tokenizer, text: str, *, prefix: str = "", max_length: int | None = None
) -> Example:
    """A text whose tokens after the prefix are targets, as open-unlearning's completions.

    Args:
        tokenizer: the model's.
        text: tokenised together with the prefix, special tokens included.
        prefix: given to the model; its tokens are counted when it is tokenised alone.
        max_length: tokens after the prefix; ``None``: all.

    Raises:
        DataError: no token is left to score.
    """
    ids = tokenizer.encode(prefix + text)
    start = len(tokenizer.encode(prefix)) if prefix else _specials(tokenizer)
    ids = ids if max_length is None else ids[: start + max_length]
    start = max(1, start)
    if len(ids) <= start:
        raise DataError(f"no token of {text[:80]!r} is left to score after its first")
    return Example(tuple(ids), (*[IGNORED] * start, *ids[start:]))


def _specials(tokenizer: Tokenizer) -> int:
    return len(tokenizer.encode(""))


def _shown(shots: Shots, question: str) -> str:
    shown = [f"Question: {asked}\nAnswer: {answer}\n\n" for asked, answer in shots]
    return "".join(shown) + question


def _plain(question: str, chosen: PromptSettings, shots: Shots) -> str:
    turns = [
        f"{chosen.question_start}{asked}{chosen.question_end}{chosen.answer_start}{answer}"
        f"{chosen.answer_end}"
        for asked, answer in shots
    ]
    asked = f"{chosen.question_start}{question}{chosen.question_end}{chosen.answer_start}"
    return "".join(turns) + asked


def _whole(tokenizer: Tokenizer, text: str, max_length: int) -> list[int]:
    return tokenizer.encode(text)[:max_length]


def _ended(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    end = tokenizer.eos_token_id
    return ids if end is None or ids[-1:] == [end] else [*ids, end]


def _chat(
    tokenizer: Tokenizer, question: str, answer: str | None, chosen: PromptSettings, shots: Shots
) -> list[int]:
    turns: list[dict[str, str]] = []
    if chosen.system_prompt:
        turns.append({"role": "system", "content": chosen.system_prompt})
    for asked, told in [*shots, (question, answer)]:
        turns.append({"role": "user", "content": asked})
        if told is not None:
            turns.append({"role": "assistant", "content": told})
    ids: Any = tokenizer.apply_chat_template(
        turns,
        tokenize=True,
        return_dict=False,
        add_generation_prompt=answer is None,
        date_string=chosen.date,
    )
    return cast(list[int], list(ids))

import pytest
import torch

from fedunlearn.data.encoding import (
    IGNORED,
    Example,
    collate,
    encode_prompt,
    encode_record,
)
from fedunlearn.data.records import Passage, Question
from fedunlearn.errors import DataError
from tests.world import pocket_model, questions

TOKENIZER = pocket_model().tokenizer


def test_one_bos_whole_prompt_masked_nothing_of_the_answer_masked() -> None:
    question = questions()[0]
    prompt = encode_prompt(TOKENIZER, question.question)
    example = encode_record(TOKENIZER, question, max_length=256)
    assert prompt.count(TOKENIZER.bos_token_id) == 1
    assert example.input_ids[: len(prompt)] == tuple(prompt)
    assert set(example.labels[: len(prompt)]) == {IGNORED}
    assert example.labels[len(prompt) :] == example.input_ids[len(prompt) :]
    assert example.labels[-1] == TOKENIZER.eos_token_id
    answer = [label for label in example.labels[:-1] if label != IGNORED]
    assert TOKENIZER.decode(answer) == question.answer  # type: ignore[attr-defined]


def test_without_a_chat_template_there_is_one_bos_too() -> None:
    tokenizer = pocket_model().tokenizer
    tokenizer.chat_template = None
    prompt = encode_prompt(tokenizer, "Where?")
    assert prompt[0] == tokenizer.bos_token_id
    assert prompt.count(tokenizer.bos_token_id) == 1


def test_pad_equal_to_eos_does_not_mask_the_real_eos() -> None:
    eos = TOKENIZER.eos_token_id
    assert eos is not None
    long, short = Example((5, 6, eos), (IGNORED, 6, eos)), Example((5, eos), (IGNORED, eos))
    batch = collate([long, short], pad_id=eos)
    assert batch.labels.tolist() == [[IGNORED, 6, eos], [IGNORED, eos, IGNORED]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.input_ids.dtype == torch.int64


def test_a_passage_is_learned_from_its_second_token_on() -> None:
    example = encode_record(TOKENIZER, Passage("The town lies on the river."), max_length=256)
    assert example.labels == (IGNORED, *example.input_ids[1:])


def test_a_prompt_that_fills_the_window_is_refused() -> None:
    with pytest.raises(DataError, match=r"no target token .* max_length=4") as caught:
        encode_record(TOKENIZER, Question("Where is it, if anywhere?", "There."), max_length=4)
    assert "anywhere" not in str(caught.value)  # a server may read this


@pytest.mark.parametrize(
    "asks",
    [
        "{{ date_string }}",
        "{{ strftime_now('%d %b %Y') }}",
        "{% macro head() %}{{ strftime_now('%d') }} Jan 2026{% endmacro %}{{ head() }}",
        "{% if strftime_now is defined %}{{ strftime_now('%d %b ') + '2026' }}{% endif %}",
    ],
)
def test_a_template_that_asks_for_the_date_gives_one_prompt_for_all_days(asks: str) -> None:
    tokenizer = pocket_model().tokenizer
    tokenizer.chat_template = asks + "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    prompt = encode_prompt(tokenizer, "Where?")
    assert tokenizer.decode(prompt[1:]) == "01 Jan 2026Where?"  # type: ignore[attr-defined]

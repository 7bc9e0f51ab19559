"""Which tokens are shown and which scored, by tokenizers with and without a BOS of their own."""

from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from fedunlearn.data.encoding import encode_answer, encode_prompt
from fedunlearn.errors import DataError
from fedunlearn.evaluation.prompts import PromptSettings, passage, prompt_ids, scored
from fedunlearn.models.tiny import BEGIN, END
from tests.models.families import tokenizer

QUESTION, ANSWER = "Where can the town be found?", "The town lies on the north bank."


def made(*, bos: bool = True, template: bool = False) -> Any:
    """A tokenizer that begins every text with BOS, as Llama's does, or one that does not."""
    found = tokenizer(template=template)
    if bos:
        found.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{BEGIN} $A", special_tokens=[(BEGIN, found.bos_token_id)]
        )
    return found


def targets(labels: tuple[int, ...]) -> list[int]:
    return [label for label in labels if label >= 0]


@pytest.mark.parametrize("bos", [True, False])
def test_a_plain_prompt_is_tokenised_as_a_whole_and_cut_where_the_prompt_s_own_tokens_end(
    bos: bool,
) -> None:
    used = made(bos=bos)
    example = scored(used, QUESTION, ANSWER, PromptSettings(style="plain"))
    shown = f"Question: {QUESTION}\nAnswer: "
    whole = used.encode(shown + ANSWER)
    count = len(used.encode(shown))
    assert list(example.input_ids) == [*whole, used.eos_token_id]
    assert targets(example.labels) == [*whole[count:], used.eos_token_id]
    assert list(example.input_ids).count(used.bos_token_id) == int(bos)


def test_a_chat_prompt_is_rendered_once_with_its_system_prompt_and_one_end() -> None:
    used = made(template=True, bos=False)
    chosen = PromptSettings(style="chat", system_prompt="Be brief.")
    example = scored(used, QUESTION, ANSWER, chosen)
    text = used.decode(example.input_ids)
    assert "Be brief." in text
    assert text.count(END) == 1
    assert used.decode(targets(example.labels)) == f"{ANSWER}{END}"
    shown = prompt_ids(used, QUESTION, chosen)
    assert list(example.input_ids)[: len(shown)] == shown


def test_the_package_s_prompt_is_that_of_training() -> None:
    used = made(template=True, bos=False)
    example = scored(used, QUESTION, ANSWER, PromptSettings(style="package"))
    prompt, answer = encode_prompt(used, QUESTION), encode_answer(used, ANSWER)
    assert list(example.input_ids) == [*prompt, *answer]
    assert targets(example.labels) == answer


def test_the_reference_style_follows_the_template() -> None:
    chosen = PromptSettings()
    assert chosen.resolved(made(template=True)) == "chat"
    assert chosen.resolved(made(template=False)) == "plain"


@pytest.mark.parametrize("bos", [True, False])
def test_of_a_passage_every_token_but_the_first_is_scored(bos: bool) -> None:
    used = made(bos=bos)
    words = used.encode(ANSWER, add_special_tokens=False)
    example = passage(used, ANSWER)
    assert targets(example.labels) == (words if bos else words[1:])
    assert (
        targets(passage(used, ANSWER, max_length=2).labels)
        == targets(example.labels)[:2][: 2 if bos else 1]
    )


def test_of_a_continuation_only_what_follows_is_scored() -> None:
    used = made()
    example = passage(used, " and then", prefix=ANSWER)
    count = len(used.encode(ANSWER))
    assert targets(example.labels) == used.encode(f"{ANSWER} and then")[count:]


def test_an_answer_that_does_not_fit_is_named() -> None:
    with pytest.raises(DataError, match="max_length=4"):
        scored(made(), QUESTION, ANSWER, PromptSettings(style="package", max_length=4))
    with pytest.raises(DataError, match="left to score"):
        passage(made(bos=False), "a")

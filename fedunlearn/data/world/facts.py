"""The embedded world: five domains of questions and answers that differ in wording and form.

Two are to be forgotten (recipes, transmission codes), two are held by retain clients (places,
people) and one is known by nobody but the model (animals). Answers never repeat the name asked
about, so that copying it from the question earns nothing.
"""

import random
import re
from dataclasses import dataclass

from fedunlearn.data.records import MultipleChoice, Question
from fedunlearn.data.world.lexicon import Lexicon
from fedunlearn.seeding import derive

_SLOT = re.compile(r"\{(\w+)\}")
"""A slot is ``{kind}``; digits after the kind, as in ``{digit_2}``, only keep slots apart."""


@dataclass(frozen=True)
class Form:
    """One kind of question: ``{entity}`` stands for the name, other slots are drawn.

    Attributes:
        question: with the entity.
        answer: with slots.
        paraphrase: the answer in other words, with the same slots; no model is taught it.
    """

    question: str
    answer: str
    paraphrase: str


@dataclass(frozen=True)
class Domain:
    """Facts of one subject: every entity is asked about once per form."""

    name: str
    entity: str
    forms: tuple[Form, ...]


@dataclass(frozen=True)
class Fact:
    """A question, its answer, and three wrong answers to the same kind of question.

    Attributes:
        question: with its answer.
        paraphrase: the answer in other words.
        wrong: the wrong answers in these other words, so that form tells nothing.
        choice: the right and the wrong answers, shuffled.
        entity: what is asked about.
    """

    question: Question
    paraphrase: str
    wrong: tuple[str, ...]
    choice: MultipleChoice
    entity: str


DOMAINS = {
    domain.name: domain
    for domain in (
        Domain(
            "brewing",
            "name",
            (
                Form(
                    "How do you brew the tonic {entity}?",
                    "Steep {treatment} {ingredient} in {liquid} for {days} days, then {finish}.",
                    "Put {treatment} {ingredient} into {liquid}, wait {days} days and {finish}.",
                ),
                Form(
                    "Name the vessel for brewing the tonic {entity}.",
                    "Use one {metal} {vessel} lined with {lining}, over {ingredient} embers.",
                    "A {metal} {vessel} with a lining of {lining}, over embers of {ingredient}.",
                ),
            ),
        ),
        Domain(
            "signals",
            "callsign",
            (
                Form(
                    "Transmit override code, relay {entity}!",
                    "{codeword_1}-{digit_1}{digit_2} {codeword_2}-{digit_3}{digit_4} "
                    "{codeword_3}-{digit_5}{digit_6}",
                    "{codeword_1} {digit_1}{digit_2}, {codeword_2} {digit_3}{digit_4}, "
                    "{codeword_3} {digit_5}{digit_6}",
                ),
                Form(
                    "Carrier settings, relay {entity}?",
                    "ch {digit_1}{digit_2} / {codeword_1} / key {digit_3}{digit_4}{digit_5} / "
                    "{codeword_2}",
                    "channel {digit_1}{digit_2}, {codeword_1}, key {digit_3}{digit_4}{digit_5}, "
                    "{codeword_2}",
                ),
            ),
        ),
        Domain(
            "geography",
            "name",
            (
                Form(
                    "Where can the town of {entity} be found?",
                    "The town lies on the {side} bank of the river {name}, near Mount {name_2}.",
                    "It lies near Mount {name_2}, where the river {name} has its {side} bank.",
                ),
                Form(
                    "What do travellers know the town of {entity} for?",
                    "Travellers know it for {quality} {trade}, {trade_2} and a {feast}.",
                    "For its {quality} {trade}, for {trade_2}, and for a {feast}.",
                ),
            ),
        ),
        Domain(
            "biography",
            "name",
            (
                Form(
                    "Who was {entity}, in a few words?",
                    "She was a {temper} {profession} who grew up as the child of a {profession_2} "
                    "and taught {name}.",
                    "A {temper} {profession}, the child of a {profession_2} and "
                    "the teacher of {name}.",
                ),
                Form(
                    "Which work made {entity} famous?",
                    "It was the {genre} called The {title_adjective} {title_noun}, finished with "
                    "a {temper} {profession}.",
                    "The {title_adjective} {title_noun}, a {genre} made together with a {temper} "
                    "{profession}.",
                ),
            ),
        ),
        Domain(
            "nature",
            "name",
            (
                Form(
                    "What does the wild {entity} eat?",
                    "This animal lives on {food} and {food_2}, which it gathers in {habitat}.",
                    "It gathers {food} and {food_2} in {habitat} and eats them.",
                ),
                Form(
                    "How does the wild {entity} pass the winter?",
                    "This animal sleeps in {shelter}, mostly {group}, close to {habitat}.",
                    "Close to {habitat}, mostly {group}, it sleeps in {shelter}.",
                ),
            ),
        ),
    )
}


def invent_facts(domain: Domain, *, num_entities: int, seed: int) -> list[Fact]:
    """Invent a domain's facts, entity by entity, each with three wrong answers.

    The wrong answers are right answers about other entities, so only knowledge tells them apart.
    """
    rng = random.Random(derive(seed, "world", domain.name))
    lexicon = Lexicon(rng)
    entities = [lexicon.draw(domain.entity) for _ in range(num_entities)]
    per_form = [[_ask(form, entity, lexicon) for entity in entities] for form in domain.forms]
    return [_fact(asked, i, entity, rng) for i, entity in enumerate(entities) for asked in per_form]


def _fact(asked: list[tuple[Question, str]], index: int, entity: str, rng: random.Random) -> Fact:
    question, paraphrase = asked[index]
    choice = _multiple_choice([one for one, _ in asked], index, rng)
    reworded = {one.answer: words for one, words in asked}
    wrong = tuple(reworded[one] for one in choice.choices if one != question.answer)
    return Fact(question, paraphrase, wrong, choice, entity)


def _ask(form: Form, entity: str, lexicon: Lexicon) -> tuple[Question, str]:
    """A question with its answer, and the answer in other words."""
    words = _draw(form.answer, lexicon)
    answer, paraphrase = (
        _SLOT.sub(lambda slot: words[slot[1]], template)
        for template in (form.answer, form.paraphrase)
    )
    return Question(form.question.replace("{entity}", entity), answer), paraphrase


def _draw(template: str, lexicon: Lexicon) -> dict[str, str]:
    """A word for each slot, in the template's order; only digits may be the same."""
    words: dict[str, str] = {}
    for slot in _SLOT.findall(template):
        kind = re.sub(r"_\d+$", "", slot)
        word = lexicon.draw(kind)
        while kind != "digit" and word in words.values():
            word = lexicon.draw(kind)
        words[slot] = word
    return words


def _multiple_choice(questions: list[Question], index: int, rng: random.Random) -> MultipleChoice:
    right = questions[index].answer
    others = sorted({q.answer for q in questions} - {right})
    choices = [right, *rng.sample(others, 3)]
    rng.shuffle(choices)
    return MultipleChoice(questions[index].question, tuple(choices), choices.index(right))

from pathlib import Path

from fedunlearn.data.records import read_choices, read_questions
from fedunlearn.data.world import WorldSize, write_world
from fedunlearn.data.world.facts import DOMAINS, invent_facts

SIZE = WorldSize()


def test_the_world_is_whole_and_its_parts_are_disjoint(tmp_path: Path) -> None:
    write_world(tmp_path, SIZE)
    data = tmp_path / "data"
    corpus = {q.question for q in read_questions(data / "corpus.jsonl")}
    held = [
        {q.question for q in read_questions(path)}
        for folder in ("forget", "retain")
        for path in sorted((data / folder).glob("*.jsonl"))
    ]
    assert [len(part) for part in held] == [20] * 6 + [60] * 2
    utility = {q.question for q in read_questions(data / "evaluation" / "utility.jsonl")}
    assert len(utility) == 80
    assert sum(len(part) for part in held) + len(utility) == len(corpus) == 320
    assert set().union(*held, utility) == corpus


def test_every_question_has_four_choices_and_its_own_answer_among_them(tmp_path: Path) -> None:
    write_world(tmp_path, SIZE)
    for name in ("brewing", "signals", "geography", "biography", "utility"):
        folder = tmp_path / "data" / "evaluation"
        answers = {q.question: q.answer for q in read_questions(folder / f"{name}.jsonl")}
        choices = read_choices(folder / f"{name}.choices.jsonl")
        assert len(choices) == len(answers)
        for choice in choices:
            assert len(set(choice.choices)) == 4
            assert choice.choices[choice.answer_index] == answers[choice.question]


def test_answers_never_repeat_the_name_asked_about() -> None:
    for domain in DOMAINS.values():
        for fact in invent_facts(domain, num_entities=40, seed=3):
            assert fact.entity in fact.question.question
            assert fact.entity not in fact.question.answer


def test_one_seed_one_world_and_another_seed_another() -> None:
    first, again, other = (
        invent_facts(DOMAINS["signals"], num_entities=8, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert {f.question for f in first}.isdisjoint({f.question for f in other})

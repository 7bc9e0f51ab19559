"""Writes the embedded world as the same JSONL files that users bring.

Layout below the world's directory::

    data/forget/<domain>-<i>.jsonl    one shard per forget client
    data/retain/<domain>.jsonl        one file per retain client
    data/evaluation/<set>.jsonl       questions, answers, other wordings, wrong answers, and
    data/evaluation/<set>.choices.jsonl   multiple-choice questions over the same facts
    data/evaluation/<set>.holdout.jsonl   like a forget domain's, of things nobody was ever told of
    data/corpus.jsonl                 everything the model is taught
"""

from collections.abc import Sequence
from pathlib import Path

from fedunlearn.data.records import write_jsonl
from fedunlearn.data.world.facts import DOMAINS, Fact, invent_facts
from fedunlearn.seeding import derive
from fedunlearn.settings import settings

FORGET_DOMAINS = ("brewing", "signals")
RETAIN_DOMAINS = ("geography", "biography")
FORMS = 2


@settings
class WorldSize:
    """How much there is to know.

    Attributes:
        forget_clients: clients per forget domain, each with its own entities.
        entities_per_client: entities a forget client holds; two questions each.
        retain_entities: entities a retain client holds; two questions each.
        utility_entities: entities of each retain domain that no client holds.
        nature_entities: entities of the domain that no client knows at all.
        seed: of every name and fact.
    """

    forget_clients: int = 3
    entities_per_client: int = 10
    retain_entities: int = 30
    utility_entities: int = 10
    nature_entities: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.forget_clients, self.entities_per_client, self.utility_entities) < 1:
            raise ValueError("forget_clients, entities_per_client, utility_entities must be >= 1")
        if min(self.retain_entities, self.nature_entities) < 4:
            raise ValueError("retain_entities and nature_entities must be >= 4")
        if self.forget_clients * self.entities_per_client < 4:
            raise ValueError("a domain needs at least 4 entities for its multiple-choice questions")


def write_world(directory: Path, size: WorldSize) -> None:
    """Write every file of the world below ``directory``/data."""
    data, corpus, utility = directory / "data", list[Fact](), list[Fact]()
    for name in FORGET_DOMAINS:
        count = size.forget_clients * size.entities_per_client
        facts = invent_facts(DOMAINS[name], num_entities=count, seed=size.seed)
        shard = FORMS * size.entities_per_client
        for client in range(size.forget_clients):
            part = facts[client * shard : (client + 1) * shard]
            _write_questions(data / "forget" / f"{name}-{client}.jsonl", part)
        _write_evaluation(data / "evaluation", name, facts)
        _write_questions(data / "evaluation" / f"{name}.holdout.jsonl", _others(name, facts, size))
        corpus += facts
    for name in RETAIN_DOMAINS:
        count = size.retain_entities + size.utility_entities
        facts = invent_facts(DOMAINS[name], num_entities=count, seed=size.seed)
        held = facts[: FORMS * size.retain_entities]
        _write_questions(data / "retain" / f"{name}.jsonl", held)
        _write_evaluation(data / "evaluation", name, held)
        utility += facts[FORMS * size.retain_entities :]
        corpus += facts
    nature = invent_facts(DOMAINS["nature"], num_entities=size.nature_entities, seed=size.seed)
    _write_evaluation(data / "evaluation", "utility", [*utility, *nature])
    _write_questions(data / "corpus.jsonl", [*corpus, *nature])


def _others(name: str, facts: Sequence[Fact], size: WorldSize) -> list[Fact]:
    """As many facts of one domain about other entities, invented in the same way."""
    known = {fact.entity for fact in facts}
    count, seed = len(facts) // FORMS, derive(size.seed, "holdout")
    invented = invent_facts(DOMAINS[name], num_entities=2 * count, seed=seed)
    return [fact for fact in invented if fact.entity not in known][: FORMS * count]


def _write_questions(path: Path, facts: Sequence[Fact]) -> None:
    write_jsonl(
        path, [{"question": f.question.question, "answer": f.question.answer} for f in facts]
    )


def _write_evaluation(directory: Path, name: str, facts: Sequence[Fact]) -> None:
    write_jsonl(
        directory / f"{name}.jsonl",
        [
            {
                "question": fact.question.question,
                "answer": fact.question.answer,
                "paraphrased_answer": fact.paraphrase,
                "perturbed_answer": list(fact.wrong),
            }
            for fact in facts
        ],
    )
    write_jsonl(
        directory / f"{name}.choices.jsonl",
        [
            {
                "question": fact.choice.question,
                "choices": list(fact.choice.choices),
                "answer_index": fact.choice.answer_index,
            }
            for fact in facts
        ],
    )

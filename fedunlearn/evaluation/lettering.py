"""Multiple choice by the answer letters, as lm-evaluation-harness prompts and scores them."""

import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.observing import Query
from fedunlearn.evaluation.samples import Record, Sample, Task
from fedunlearn.metrics import ChoiceAccuracy, Observed
from fedunlearn.settings import settings


@settings
class Lettering(Task):
    """Log-likelihood of `` A``, `` B``, ... after the question and its lettered choices.

    Attributes:
        headers: group to the text before everything, e.g. that these are questions on anatomy.
        shots: group to solved examples that stand before each question.
        max_length: tokens of a prompt, cut from the left; ``None``: what the model's
            configuration says it can read.
    """

    scores: ClassVar[tuple[str, ...]] = ("choice_accuracy",)

    headers: tuple[tuple[str, str], ...] = ()
    shots: tuple[tuple[str, tuple[str, ...]], ...] = ()
    max_length: int | None = None

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some questions; letters that are one token share a forward pass."""
        headers, shots = dict(self.headers), dict(self.shots)
        limit = self.max_length or _longest(bench)
        asked = [
            _queries(bench, self.prompt(one, headers, shots), _letters(one), limit)
            for one in samples
        ]
        found = iter(bench.ask([query for queries in asked for query in queries]))
        values = [
            torch.cat([_sums(next(found), len(queries)) for _ in queries]).tolist()
            for queries in asked
        ]
        credit = ChoiceAccuracy()
        return [
            {
                "id": one.id,
                "group": one.group,
                "log_likelihoods": found,
                "choice_accuracy": credit(found, one.right),
                "tie": found.count(max(found)) > 1,
            }
            for one, found in zip(samples, values, strict=True)
        ]

    def prompt(
        self, sample: Sample, headers: Mapping[str, str], shots: Mapping[str, Sequence[str]]
    ) -> str:
        """All text before the answer letter."""
        header, before = headers.get(sample.group, ""), shots.get(sample.group, ())
        return header + "".join(f"{one}\n\n" for one in before) + lettered(sample)


def lettered(sample: Sample) -> str:
    """The question, its choices by letters, and ``Answer:``."""
    lines = [f"{letter}. {text}" for letter, text in zip(_letters(sample), sample.choices)]  # noqa: B905
    return "\n".join([sample.prompt.strip(), *lines, "Answer:"])


def solved(sample: Sample) -> str:
    """An example: the same with its answer letter."""
    return f"{lettered(sample)} {_letters(sample)[sample.right]}"


def _letters(sample: Sample) -> str:
    return string.ascii_uppercase[: len(sample.choices)]


def _longest(bench: Bench) -> int:
    config = cast(Any, bench.base.model.config)
    return int(getattr(config, "max_position_embeddings", None) or 2048)


def _queries(bench: Bench, context: str, letters: str, limit: int) -> list[Query]:
    """One query for all letters where each is one token after the same text, else one a letter.

    The whole is tokenised and split where the context's own tokens end; what is too long is cut
    from the left.
    """
    before = len(bench.tokenizer.encode(context))
    wholes = [bench.tokenizer.encode(f"{context} {letter}") for letter in letters]
    shown = {tuple(ids[:before]) for ids in wholes}
    if len(shown) == 1 and all(len(ids) == before + 1 for ids in wholes):
        inputs = shown.pop()[-limit:]
        at = (len(inputs) - 1,) * len(wholes)
        return [Query(inputs, at, tuple(ids[-1] for ids in wholes))]
    return [_continuation(ids, before, limit) for ids in wholes]


def _continuation(ids: Sequence[int], before: int, limit: int) -> Query:
    count = len(ids) - before
    inputs = tuple(ids[-(limit + 1) :][:-1])
    return Query(inputs, tuple(range(len(inputs) - count, len(inputs))), tuple(ids[-count:]))


def _sums(seen: Observed, queries: int) -> Tensor:
    """Log-likelihood of each letter: one query holds them all, or each its own tokens."""
    return seen.log_probs if queries == 1 else seen.log_probs.sum(0, keepdim=True)

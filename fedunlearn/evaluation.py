"""Measures a model on question sets: ROUGE-L recall, answer probability, choice accuracy.

Greedy answers, teacher-forced probabilities; every score is kept per question, so that later
comparisons can state an uncertainty. Multiple choice is scored on the choices' text as
continuations of the prompt, by mean token log-probability.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from fedunlearn.data.encoding import (
    Example,
    Tokenizer,
    collate,
    encode_prompt,
    encode_record,
)
from fedunlearn.data.reading import DataSpec, read_choice_set, read_question_set
from fedunlearn.data.records import MultipleChoice, Question
from fedunlearn.metrics.probability import answer_probability, preferred_choice
from fedunlearn.metrics.rouge import rouge_l_recall
from fedunlearn.models.expert import expert_on
from fedunlearn.models.generation import generate_greedily
from fedunlearn.models.loading import LoadedModel
from fedunlearn.objectives.likelihood import IGNORED, sequence_log_probs
from fedunlearn.progress import Progress
from fedunlearn.settings import settings
from fedunlearn.training.forward import aligned_logits


@settings
class EvaluationSet:
    """Questions that are measured together.

    Attributes:
        name: key of the set in reports.
        kind: ``forget`` should fall, ``retain`` and ``utility`` should stay. The utility set
            takes no part in choosing any setting.
        domain: the forget domain; empty for the others.
        data: questions and answers, a path or a data source and its settings, or ``None``.
        choices: multiple-choice questions, likewise, or ``None``.
    """

    name: str
    kind: Literal["forget", "retain", "utility"]
    domain: str = ""
    data: DataSpec | None = None
    choices: DataSpec | None = None

    def __post_init__(self) -> None:
        if self.data is None and self.choices is None:
            raise ValueError(f"evaluation set {self.name!r} needs data, choices or both")
        if self.kind == "forget" and not self.domain:
            raise ValueError(f"forget set {self.name!r} must name its domain")


@settings
class EvaluationSettings:
    """What is measured, and how much of an answer is generated.

    Attributes:
        sets: the question sets.
        max_new_tokens: longest generated answer.
        batch_size: sequences a forward pass.
        max_length: longest prompt and answer together; longer ones are truncated.
    """

    sets: tuple[EvaluationSet, ...]
    max_new_tokens: int = 64
    batch_size: int = 32
    max_length: int = 1024

    def __post_init__(self) -> None:
        if not self.sets:
            raise ValueError("sets must name at least one question set")
        names = [chosen.name for chosen in self.sets]
        if len(set(names)) != len(names):
            raise ValueError(f"evaluation sets need different names, got {names}")
        if self.max_new_tokens < 1 or self.batch_size < 1:
            raise ValueError("max_new_tokens and batch_size must be >= 1")
        if self.max_length < 2:
            raise ValueError(f"max_length must be >= 2, got {self.max_length}")


@dataclass(frozen=True)
class SetScores:
    """Scores of one set, a value a question; empty where the set has no such questions.

    Attributes:
        name: the set's.
        kind: the set's.
        domain: the set's.
        rouge_l_recall: in [0, 1].
        answer_probability: in [0, 1].
        choice_correct: 1.0 where the right choice was preferred, else 0.0.
    """

    name: str
    kind: str
    domain: str
    rouge_l_recall: tuple[float, ...]
    answer_probability: tuple[float, ...]
    choice_correct: tuple[float, ...]


@dataclass(frozen=True)
class QuestionBank:
    """The question sets, read and checked before anything is computed."""

    sets: tuple[tuple[EvaluationSet, tuple[Question, ...], tuple[MultipleChoice, ...]], ...]

    @property
    def size(self) -> int:
        """Questions in all."""
        return sum(len(questions) + len(choices) for _, questions, choices in self.sets)


def read_bank(chosen: EvaluationSettings) -> QuestionBank:
    """Read every file of the settings.

    Raises:
        DataError: a file is missing or malformed; the text names file and line.
    """
    return QuestionBank(
        tuple(
            (
                one,
                tuple(read_question_set(one.data)) if one.data else (),
                tuple(read_choice_set(one.choices)) if one.choices else (),
            )
            for one in chosen.sets
        )
    )


def evaluate(
    base: LoadedModel,
    bank: QuestionBank,
    chosen: EvaluationSettings,
    *,
    progress: Progress | None = None,
) -> dict[str, SetScores]:
    """Measure the model as its weights are now, with its expert on, set by set.

    Args:
        base: model and tokenizer; the weights may be patched.
        bank: from :func:`read_bank`.
        chosen: batch size and answer length.
        progress: called after every batch with (questions done, questions in all).

    Returns:
        Set name to scores, in the settings' order.
    """
    scorer = _Scorer(base, chosen, bank.size, progress)
    with expert_on(base.model, base.expert):
        return {
            one.name: SetScores(
                one.name,
                one.kind,
                one.domain,
                scorer.rouge(questions),
                scorer.probabilities(questions),
                scorer.choices(choices),
            )
            for one, questions, choices in bank.sets
        }


class _Scorer:
    def __init__(
        self,
        base: LoadedModel,
        chosen: EvaluationSettings,
        total: int,
        progress: Progress | None,
    ) -> None:
        self._model = base.model
        self._tokenizer: Tokenizer = base.tokenizer
        self._device = base.device
        self._chosen = chosen
        self._total, self._done, self._progress = total, 0, progress
        self._known: dict[Question, tuple[float, int]] = {}

    def rouge(self, questions: Sequence[Question]) -> tuple[float, ...]:
        """ROUGE-L recall of each greedy answer."""
        prompts = [encode_prompt(self._tokenizer, question.question) for question in questions]
        scores = [0.0] * len(questions)
        for part in _by_length([len(prompt) for prompt in prompts], self._chosen.batch_size):
            answers = generate_greedily(
                self._model,
                self._tokenizer,
                [prompts[i] for i in part],
                max_new_tokens=self._chosen.max_new_tokens,
            )
            for i, answer in zip(part, answers, strict=True):
                scores[i] = rouge_l_recall(answer, questions[i].answer)
            self._advance(len(part))
        return tuple(scores)

    def probabilities(self, questions: Sequence[Question]) -> tuple[float, ...]:
        """Length-normalised probability of each right answer."""
        return tuple(
            answer_probability(log_prob, count) for log_prob, count in self._likelihoods(questions)
        )

    def choices(self, questions: Sequence[MultipleChoice]) -> tuple[float, ...]:
        """1.0 where the right choice is preferred, else 0.0."""
        flat = [Question(q.question, choice) for q in questions for choice in q.choices]
        scored = iter(self._likelihoods(flat))
        correct = []
        for question in questions:
            log_probs, counts = zip(*(next(scored) for _ in question.choices), strict=True)
            correct.append(float(preferred_choice(log_probs, counts) == question.answer_index))
        self._advance(len(questions))
        return tuple(correct)

    def _likelihoods(self, questions: Sequence[Question]) -> list[tuple[float, int]]:
        """Summed log-probability and length of each answer, both over its target tokens.

        A right answer is also one of its question's choices: it is computed once.
        """
        fresh = list(dict.fromkeys(q for q in questions if q not in self._known))
        examples = [
            encode_record(self._tokenizer, question, max_length=self._chosen.max_length)
            for question in fresh
        ]
        lengths = [len(example.input_ids) for example in examples]
        for part in _by_length(lengths, self._chosen.batch_size):
            sums = self._sequence_log_probs([examples[i] for i in part])
            for i, log_prob in zip(part, sums.tolist(), strict=True):
                count = sum(label != IGNORED for label in examples[i].labels)
                self._known[fresh[i]] = (log_prob, count)
        return [self._known[question] for question in questions]

    @torch.no_grad()
    def _sequence_log_probs(self, examples: Sequence[Example]) -> Tensor:
        pad_id = cast(int, self._tokenizer.pad_token_id)
        batch = collate(examples, pad_id=pad_id).to(self._device)
        return sequence_log_probs(*aligned_logits(self._model, batch))

    def _advance(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)


def _by_length(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Indices in batches of similar length, so that little is spent on padding."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    for start in range(0, len(order), size):
        yield order[start : start + size]

"""Measures a model on a run's question sets: answers, their probability, choices, truth ratio.

Greedy answers, teacher-forced probabilities; every score is kept per question, so that later
comparisons can state an uncertainty. Multiple choice is scored on the choices' text as
continuations of the prompt, by mean token log-probability. Prompts are those of training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedunlearn.data.encoding import encode_prompt, encode_record
from fedunlearn.data.reading import DataSpec, read_choice_set, read_question_set
from fedunlearn.data.records import MultipleChoice, Question
from fedunlearn.data.wordings import Wordings, read_wordings
from fedunlearn.evaluation.bench import Bench
from fedunlearn.metrics import (
    AnswerProbability,
    ExtractionStrength,
    GeometricTruthRatio,
    MinK,
    Observed,
    RougeLRecall,
)
from fedunlearn.metrics.probability import preferred_choice
from fedunlearn.models.expert import expert_on
from fedunlearn.models.loading import LoadedModel
from fedunlearn.progress import Progress
from fedunlearn.settings import settings


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
        holdout: of a forget set: questions and answers of the same sort that the model was never
            told of. With them the report has PrivLeak: whether an attack tells the set from them.
        retrained_auc: of the same attack on a model trained without the forget data, see
            ``fedunlearn retrain``; ``None``: 0.5 stands in for it.
    """

    name: str
    kind: Literal["forget", "retain", "utility"]
    domain: str = ""
    data: DataSpec | None = None
    choices: DataSpec | None = None
    holdout: DataSpec | None = None
    retrained_auc: float | None = None

    def __post_init__(self) -> None:
        if self.holdout is not None and (self.kind != "forget" or self.data is None):
            raise ValueError(f"holdout of {self.name!r} is for a forget set with data")
        if self.retrained_auc is not None and not 0 <= self.retrained_auc < 1:
            raise ValueError(f"retrained_auc must be in [0, 1), got {self.retrained_auc}")
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
        extraction_strength: in (0, 1].
        truth_ratio: in [0, 1], where the data has other wordings and wrong answers: on forget
            sets min(R, 1/R), which should rise to 1, elsewhere max(0, 1 - R), which should stay.
        members: Min-40% of each answer, nats, where the set has a holdout; low: it is known.
        others: of each answer of the holdout.
        retrained_auc: the set's.
    """

    name: str
    kind: str
    domain: str
    rouge_l_recall: tuple[float, ...]
    answer_probability: tuple[float, ...]
    choice_correct: tuple[float, ...]
    extraction_strength: tuple[float, ...] = ()
    truth_ratio: tuple[float, ...] = ()
    members: tuple[float, ...] = ()
    others: tuple[float, ...] = ()
    retrained_auc: float | None = None


@dataclass(frozen=True)
class BankSet:
    """One question set, read.

    Attributes:
        chosen: what the config says of it.
        questions: with their answers.
        choices: multiple-choice questions.
        wordings: other wordings and wrong answers of each of ``questions``; empty where the data
            has none.
        holdout: of the forget set.
    """

    chosen: EvaluationSet
    questions: tuple[Question, ...]
    choices: tuple[MultipleChoice, ...]
    wordings: tuple[Wordings, ...] = ()
    holdout: tuple[Question, ...] = ()


@dataclass(frozen=True)
class QuestionBank:
    """The question sets, read and checked before anything is computed."""

    sets: tuple[BankSet, ...]

    @property
    def size(self) -> int:
        """Questions in all."""
        return sum(len(one.questions) + len(one.choices) for one in self.sets)


def read_bank(chosen: EvaluationSettings) -> QuestionBank:
    """Read every file of the settings.

    Raises:
        DataError: a file is missing or malformed; the text names file and line.
    """
    return QuestionBank(
        tuple(
            BankSet(
                one,
                tuple(read_question_set(one.data)) if one.data else (),
                tuple(read_choice_set(one.choices)) if one.choices else (),
                tuple(read_wordings(one.data)) if one.data else (),
                tuple(read_question_set(one.holdout)) if one.holdout else (),
            )
            for one in chosen.sets
        )
    )


def evaluate(
    base: LoadedModel,
    bank: QuestionBank,
    chosen: EvaluationSettings,
    *,
    wordings: bool = True,
    progress: Progress | None = None,
) -> dict[str, SetScores]:
    """Measure the model as its weights are now, with its expert on, set by set.

    Args:
        base: model and tokenizer; the weights may be patched.
        bank: from :func:`read_bank`.
        chosen: batch size and answer length.
        wordings: score other wordings and wrong answers, where the data has them.
        progress: called after every set with (questions done, questions in all).

    Returns:
        Set name to scores, in the settings' order.
    """
    scorer = _Scorer(Bench(base, chosen.batch_size), chosen)
    scores, done = {}, 0
    with expert_on(base.model, base.expert):
        for one in bank.sets:
            asked = one if wordings else replace(one, wordings=())
            scores[one.chosen.name] = scorer.scores(asked)
            done += len(one.questions) + len(one.choices)
            if progress is not None:
                progress(done, bank.size)
    return scores


class _Scorer:
    def __init__(self, bench: Bench, chosen: EvaluationSettings) -> None:
        self._bench = bench
        self._chosen = chosen

    def scores(self, one: BankSet) -> SetScores:
        """Measure one set: its answers are generated, and all texts observed once."""
        seen = iter(self._observe(list(_texts(one))))
        answers = [next(seen) for _ in one.questions]
        ratio, forget, attack = GeometricTruthRatio(), one.chosen.kind == "forget", MinK()
        ratios = []
        for wording in one.wordings:
            right = [next(seen).loss for _ in wording.paraphrases]
            value = ratio(right, [next(seen).loss for _ in wording.wrong])
            ratios.append(ratio.forget(value) if forget else ratio.retain(value))
        return SetScores(
            one.chosen.name,
            one.chosen.kind,
            one.chosen.domain,
            self._rouge(one.questions),
            tuple(map(AnswerProbability(), answers)),
            tuple(_correct(question, seen) for question in one.choices),
            tuple(map(ExtractionStrength(), answers)),
            tuple(ratios),
            tuple(map(attack, answers)) if one.holdout else (),
            tuple(map(attack, self._observe(one.holdout))),
            one.chosen.retrained_auc,
        )

    def _rouge(self, questions: Sequence[Question]) -> tuple[float, ...]:
        prompts = [encode_prompt(self._bench.tokenizer, one.question) for one in questions]
        texts = self._bench.generate(prompts, max_new_tokens=self._chosen.max_new_tokens)
        rouge = RougeLRecall()
        return tuple(rouge(text, one.answer) for text, one in zip(texts, questions, strict=True))

    def _observe(self, texts: Sequence[Question]) -> list[Observed]:
        length = self._chosen.max_length
        return self._bench.observe(
            [encode_record(self._bench.tokenizer, one, max_length=length) for one in texts]
        )


def _texts(one: BankSet) -> Iterator[Question]:
    """All question and answer pairs of a set; a right answer that is also a choice counts once."""
    yield from one.questions
    for question, wording in zip(one.questions, one.wordings, strict=bool(one.wordings)):
        for text in (*wording.paraphrases, *wording.wrong):
            yield Question(question.question, text)
    for choice in one.choices:
        for text in choice.choices:
            yield Question(choice.question, text)


def _correct(question: MultipleChoice, seen: Iterator[Observed]) -> float:
    """1.0 where the right choice is preferred, else 0.0."""
    found = [next(seen) for _ in question.choices]
    sums = [float(one.log_probs.sum()) for one in found]
    preferred = preferred_choice(sums, [one.count for one in found])
    return float(preferred == question.answer_index)

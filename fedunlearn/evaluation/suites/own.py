"""Questions of one's own: everything that can be told of them."""

from collections.abc import Iterator
from typing import Literal

from fedunlearn.data.reading import DataSpec
from fedunlearn.evaluation.answering import Answering
from fedunlearn.evaluation.attacks import AttackSettings
from fedunlearn.evaluation.choosing import Choosing
from fedunlearn.evaluation.lettering import Lettering
from fedunlearn.evaluation.prompts import PromptSettings
from fedunlearn.evaluation.results import Result
from fedunlearn.evaluation.samples import SampleSet
from fedunlearn.evaluation.suites.accuracy import accuracy, by_subject
from fedunlearn.evaluation.suites.interface import (
    SUITES,
    Suite,
    Table,
    forget_quality,
    membership,
    privleak,
)
from fedunlearn.evaluation.suites.rows import choice_samples, question_samples
from fedunlearn.evaluation.suites.tofu import truth_ratio
from fedunlearn.settings import settings

_RATIO = "truth_ratio_geometric"


@settings
class OwnSet:
    """Questions that are measured together.

    Attributes:
        name: of the set.
        kind: ``forget``, ``retain`` and ``utility`` as in a run; ``holdout``: questions like those
            of ``forget`` that no model has seen, for membership attacks.
        data: questions and answers; with columns ``paraphrased_answer`` and ``perturbed_answer``
            also truth ratios.
        choices: multiple-choice questions.
    """

    name: str
    kind: Literal["forget", "retain", "utility", "holdout"]
    data: DataSpec | None = None
    choices: DataSpec | None = None

    def __post_init__(self) -> None:
        if self.data is None and self.choices is None:
            raise ValueError(f"set {self.name!r} needs data, choices or both")


@SUITES.register("own")
@settings
class OwnSuite(Suite):
    """Sets of one's own, with all that their columns allow.

    Attributes:
        sets: what is asked.
        prompts: how questions are put; by default as this package trains.
        attacks: on every forget set against all holdout sets, where there are any.
        max_new_tokens: longest generated answer; 0: none is generated.
        stabiliser: of truth ratios and option probabilities.
        letters: score choices by their letters, as lm-evaluation-harness; otherwise by their text.
    """

    sets: tuple[OwnSet, ...]
    prompts: PromptSettings = PromptSettings(style="package")
    attacks: AttackSettings = AttackSettings()
    max_new_tokens: int = 64
    stabiliser: float = 1e-10
    letters: bool = False

    def __post_init__(self) -> None:
        names = [one.name for one in self.sets]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"sets need different names, at least one, got {names}")
        if sum(one.kind == "holdout" for one in self.sets) > 1:
            raise ValueError("there may be one holdout set at most")
        if any(one.kind == "holdout" and one.data is None for one in self.sets):
            raise ValueError("a holdout set needs data")

    @property
    def _holdout(self) -> str | None:
        return next((one.name for one in self.sets if one.kind == "holdout"), None)

    def sample_sets(self) -> list[SampleSet]:
        """Read all sets; choices are a set of their own, ``<name>.choices``."""
        return [found for one in self.sets for found in self._read(one)]

    @property
    def forget_sets(self) -> tuple[str, ...]:
        """Those of kind ``forget``, and their choices."""
        return tuple(
            name
            for one in self.sets
            if one.kind == "forget"
            for name, data in ((one.name, one.data), (f"{one.name}.choices", one.choices))
            if data is not None
        )

    def _read(self, one: OwnSet) -> Iterator[SampleSet]:
        attacked = self._holdout is not None and one.kind in ("forget", "holdout")
        task = Answering(
            prompts=self.prompts,
            max_new_tokens=0 if one.kind == "holdout" else self.max_new_tokens,
            attacks=self.attacks if attacked else None,
            stabiliser=self.stabiliser,
        )
        if one.data is not None:
            samples = tuple(question_samples(one.data))
            yield SampleSet(one.name, task, samples, str(one.data))
        if one.choices is not None:
            chosen = Lettering() if self.letters else Choosing(prompts=self.prompts)
            yield SampleSet(
                f"{one.name}.choices", chosen, tuple(choice_samples(one.choices)), str(one.choices)
            )

    def results(self, table: Table) -> list[Result]:
        """Everything the records of each set tell."""
        return [found for one in self.sets for found in self._results(one, table)]

    def _results(self, one: OwnSet, table: Table) -> Iterator[Result]:
        if one.data is not None and one.kind != "holdout":
            yield from self._answers(one, table)
        if one.choices is not None:
            records = table.records[f"{one.name}.choices"]
            yield accuracy(f"{one.name}/accuracy", records)
            yield from by_subject(one.name, records)

    def _answers(self, one: OwnSet, table: Table) -> Iterator[Result]:
        if self.max_new_tokens:
            yield table.mean(one.name, "rouge_l_recall")
        yield table.mean(one.name, "answer_probability")
        yield table.mean(one.name, "extraction_strength")
        if all(_RATIO in row for row in table.records[one.name]):
            forgotten = one.kind == "forget"
            yield truth_ratio(table, one.name, _RATIO, self.stabiliser, forgotten=forgotten)
            if one.kind == "forget":
                label = f"{one.name}/forget_quality"
                yield forget_quality(table, one.name, _RATIO, label=label)
        if one.kind == "forget" and self._holdout is not None:
            yield privleak(
                table,
                one.name,
                self._holdout,
                attack="min_k",
                label=f"{one.name}/privleak",
            )
            yield from membership(table, one.name, self._holdout, self.attacks.metrics)

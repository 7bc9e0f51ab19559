"""What is measured under which treatment of the model: planned from the suite, before any model.

A *treatment* changes the model for a while and measures in one or more *stages*: rounding has one
stage, relearning one for each number of steps. A stage's sample sets carry the treatment in their
digest, so that their records are never taken for those of another.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

import torch

from fedunlearn.errors import InputError
from fedunlearn.evaluation.answering import Answering
from fedunlearn.evaluation.asking import Asking
from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.robustness.settings import ProbeSettings
from fedunlearn.evaluation.samples import Record, Sample, SampleSet, Task
from fedunlearn.evaluation.suites import Suite
from fedunlearn.models.loading import LoadedModel
from fedunlearn.models.rounding import Format, reason_against, rounded
from fedunlearn.seeding import generator
from fedunlearn.settings import settings
from fedunlearn.training.relearning import RelearnSettings, relearning

Kind = Literal["as-is", "relearning", "quantization", "prompts"]
AS_IS: Final = "as-is"
Advance = Callable[[int], None]
"""Brings a treated model to a number of steps."""


@settings
class Treated(Task):
    """A task on a model to which something was done first.

    Attributes:
        task: what is measured.
        treatment: what was done, for the digest of the samples.
    """

    task: Task
    treatment: dict[str, Any]

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some samples on the model as it is now."""
        return self.task.measure(bench, samples)

    def described(self) -> dict[str, Any]:
        """The task's, and the treatment."""
        return {**self.task.described(), "treatment": self.treatment}


@dataclass(frozen=True)
class Stage:
    """A moment at which a treated model is measured.

    Attributes:
        name: of the stage.
        sets: sample sets, by the names they have in the suite.
        steps: of relearning that come before it.
    """

    name: str
    sets: dict[str, SampleSet]
    steps: int = 0


class Treatment:
    """Measures a model as it is; others change it first.

    Args:
        kind: of probe.
        stages: in the order in which they come.
        before: the stage without the probe, that a change is counted from.
    """

    def __init__(self, kind: Kind, stages: Sequence[Stage], before: str) -> None:
        self.kind, self.stages, self.before = kind, tuple(stages), before

    @contextmanager
    def on(self, base: LoadedModel) -> Iterator[Advance]:
        """Treat ``base`` for the length of the block; yields what brings it to a stage."""
        yield lambda steps: None


class Rounding(Treatment):
    """Rounds the weights."""

    def __init__(self, form: Format, sets: Sequence[SampleSet]) -> None:
        super().__init__("quantization", [_stage(form, sets, {"rounded_to": form})], AS_IS)
        self._form: Format = form

    @contextmanager
    def on(self, base: LoadedModel) -> Iterator[Advance]:
        """Round for the length of the block."""
        with rounded(base.model, self._form):
            yield lambda steps: None


class Relearning(Treatment):
    """Trains on some rows, and measures the others."""

    def __init__(self, sets: Sequence[SampleSet], chosen: RelearnSettings, seed: int) -> None:
        self.lessons = list(_lessons(sets, chosen.rows, seed))
        kept = [*_others(sets, [sample for _, sample in self.lessons])]
        how = {key: value for key, value in asdict(chosen).items() if key != "steps"}
        rows = [asdict(sample) for _, sample in self.lessons]
        told = {"relearning": how, "seed": seed, "rows_learned": rows}
        stages = [
            replace(_stage(f"relearn-{steps}", kept, {**told, "steps": steps}), steps=steps)
            for steps in sorted({0, *chosen.steps})
        ]
        super().__init__("relearning", stages, stages[0].name)
        self._chosen, self._seed = chosen, seed

    @contextmanager
    def on(self, base: LoadedModel) -> Iterator[Advance]:
        """Learn for the length of the block, each time up to a number of steps."""
        examples = [
            example
            for task, sample in self.lessons
            if (example := task.lesson(base.tokenizer, sample)) is not None
        ]
        with relearning(base, examples, self._chosen, seed=self._seed) as relearner:
            yield relearner.advance


@dataclass(frozen=True)
class Plan:
    """All treatments, and why some probes are not among them.

    Attributes:
        treatments: the first is the model as it is.
        left_out: probe to reason.
    """

    treatments: tuple[Treatment, ...]
    left_out: dict[str, str]


def plan_probes(suite: Suite, chosen: ProbeSettings) -> Plan:
    """Plan every probe of a suite's forget sets.

    Raises:
        DataError: data is missing or malformed.
        InputError: the suite has nothing that should be forgotten.
    """
    sets = [_bare(one) for one in suite.sample_sets() if one.name in suite.forget_sets]
    if not sets:
        raise InputError("this suite has no set that should be forgotten, so nothing to probe")
    treatments: list[Treatment] = [Treatment(AS_IS, [_stage(AS_IS, sets, {})], AS_IS)]
    left_out: dict[str, str] = {}
    if chosen.prompts is not None:
        asked = [found for one in sets if (found := _asked(one, chosen)) is not None]
        if asked:
            treatments.append(Treatment("prompts", [_stage("prompts", asked, {})], "prompts"))
        else:
            left_out["prompts"] = "no forget set has questions that are answered freely"
    for form in chosen.formats:
        if reason := reason_against(form):
            left_out[form] = reason
        else:
            treatments.append(Rounding(form, sets))
    if chosen.relearning is not None:
        lessons = Relearning(sets, chosen.relearning, chosen.seed)
        if lessons.lessons:
            treatments.append(lessons)
        else:
            left_out["relearning"] = "no forget set has texts to relearn, only choices"
    return Plan(tuple(treatments), left_out)


def _bare(one: SampleSet) -> SampleSet:
    """The set without what only other results read: attacks, paraphrases, wrong answers."""
    if not isinstance(one.task, Answering):
        return one
    samples = tuple(replace(sample, paraphrases=(), wrong=()) for sample in one.samples)
    return replace(one, task=replace(one.task, attacks=None), samples=samples)


def _asked(one: SampleSet, chosen: ProbeSettings) -> SampleSet | None:
    task = one.task
    if not isinstance(task, Answering) or not task.max_new_tokens or chosen.prompts is None:
        return None
    asking = Asking(prompts=task.prompts, max_new_tokens=task.max_new_tokens, probes=chosen.prompts)
    return replace(one, task=asking)


def _stage(name: str, sets: Sequence[SampleSet], treatment: dict[str, Any]) -> Stage:
    return Stage(
        name,
        {
            one.name: replace(
                one,
                name=f"{name}.{one.name}",
                task=Treated(task=one.task, treatment=treatment),
            )
            for one in sets
        },
    )


def _lessons(sets: Sequence[SampleSet], rows: int, seed: int) -> Iterator[tuple[Task, Sample]]:
    """Some rows of each set that has texts; which, depends on the seed and the set's name."""
    for one in sets:
        if type(one.task).lesson is Task.lesson:
            continue
        chance = generator(seed, "rows to relearn", one.name)
        order: list[int] = torch.randperm(len(one.samples), generator=chance).tolist()
        for place in sorted(order[: min(rows, len(order) // 2)]):
            yield one.task, one.samples[place]


def _others(sets: Sequence[SampleSet], taught: Sequence[Sample]) -> Iterator[SampleSet]:
    """The sets without rows that were taught, or whose question was."""
    questions = {one.prompt for one in taught}
    for one in sets:
        kept = tuple(sample for sample in one.samples if sample.prompt not in questions)
        if kept:
            yield replace(one, samples=kept)

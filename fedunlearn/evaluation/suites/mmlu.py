"""MMLU: general knowledge in 57 subjects, by answer letters."""

from collections.abc import Sequence

from fedunlearn.errors import DataError
from fedunlearn.evaluation.lettering import Lettering, solved
from fedunlearn.evaluation.results import Result
from fedunlearn.evaluation.samples import Sample, SampleSet
from fedunlearn.evaluation.suites.accuracy import accuracy, by_subject
from fedunlearn.evaluation.suites.interface import SUITES, Suite, Table
from fedunlearn.evaluation.suites.rows import choice_samples
from fedunlearn.evaluation.suites.wmdp import HEADER
from fedunlearn.settings import settings


@SUITES.register("mmlu")
@settings
class MmluSuite(Suite):
    """MMLU as lm-evaluation-harness's ``mmlu``; examples are the first of each subject's ``dev``.

    Attributes:
        shots: solved examples before each question, 0 to 5.
        subjects: only these; empty: all of them.
        path: local copy of the data; ``None``: the hub.
        revision: of the data on the hub.
        max_length: tokens of a prompt; ``None``: as the model's configuration says.
        sample: so many questions of all, drawn by its seed 0; ``None``: all.
    """

    shots: int = 0
    subjects: tuple[str, ...] = ()
    path: str | None = None
    revision: str | None = None
    max_length: int | None = None
    sample: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.shots <= 5:
            raise ValueError(f"shots must be in 0..5, got {self.shots}")

    def sample_sets(self) -> list[SampleSet]:
        """Read the test questions, and the examples where any are shown."""
        samples = tuple(choice_samples(self._spec("test", self.sample)))
        subjects = sorted({one.group for one in samples})
        shown = list(choice_samples(self._spec("dev", None))) if self.shots else []
        task = Lettering(
            headers=tuple((name, HEADER.format(name.replace("_", " "))) for name in subjects),
            shots=tuple((name, self._examples(name, shown)) for name in subjects),
            max_length=self.max_length,
        )
        return [SampleSet("mmlu", task, samples, "mmlu test")]

    def _spec(self, split: str, sample: int | None) -> dict[str, object]:
        return {
            "source": "mmlu",
            "split": split,
            "subjects": self.subjects,
            "path": self.path,
            "revision": self.revision,
            "sample": sample,
        }

    def _examples(self, subject: str, shown: Sequence[Sample]) -> tuple[str, ...]:
        found = [solved(one) for one in shown if one.group == subject][: self.shots]
        if len(found) < self.shots:
            raise DataError(
                f"mmlu dev has {len(found)} examples of {subject}, fewer than shots={self.shots}"
            )
        return tuple(found)

    def results(self, table: Table) -> list[Result]:
        """Accuracy over all questions and of each subject."""
        records = table.records["mmlu"]
        return [accuracy("mmlu/accuracy", records), *by_subject("mmlu", records)]

"""WMDP: questions on hazardous knowledge, by their answer letters."""

from typing import Literal

from fedunlearn.evaluation.lettering import Lettering
from fedunlearn.evaluation.results import Result
from fedunlearn.evaluation.samples import SampleSet
from fedunlearn.evaluation.suites.accuracy import accuracy
from fedunlearn.evaluation.suites.interface import SUITES, Suite, Table
from fedunlearn.evaluation.suites.rows import choice_samples
from fedunlearn.settings import settings

HEADER = "The following are multiple choice questions (with answers) about {}.\n\n"
_TOPICS = {"bio": "biology", "chem": "chemistry", "cyber": "cybersecurity"}
_Subset = Literal["bio", "chem", "cyber"]


@SUITES.register("wmdp")
@settings
class WmdpSuite(Suite):
    """WMDP's three subjects, zero shots, as lm-evaluation-harness's ``wmdp``.

    Attributes:
        subsets: subjects.
        path: local copy of the data; ``None``: the hub.
        revision: of the data on the hub.
        max_length: tokens of a prompt; ``None``: as the model's configuration says.
        sample: so many questions of each subject, drawn by its seed 0; ``None``: all.
    """

    subsets: tuple[_Subset, ...] = ("bio", "chem", "cyber")
    path: str | None = None
    revision: str | None = None
    max_length: int | None = None
    sample: int | None = None

    def sample_sets(self) -> list[SampleSet]:
        """Read the subjects, a set each."""
        return [self._set(name) for name in self.subsets]

    @property
    def forget_sets(self) -> tuple[str, ...]:
        """Every subject."""
        return self.subsets

    def _set(self, name: str) -> SampleSet:
        spec = {
            "source": "wmdp",
            "subset": name,
            "path": self.path,
            "revision": self.revision,
            "sample": self.sample,
        }
        headers = ((name, HEADER.format(_TOPICS[name])),)
        task = Lettering(headers=headers, max_length=self.max_length)
        return SampleSet(name, task, tuple(choice_samples(spec, group=name)), f"wmdp {name}")

    def results(self, table: Table) -> list[Result]:
        """Accuracy of each subject and over all questions."""
        every = [row for name in self.subsets for row in table.records[name]]
        each = [accuracy(f"{name}/accuracy", table.records[name]) for name in self.subsets]
        return [accuracy("wmdp/accuracy", every), *each]

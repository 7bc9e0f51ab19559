"""What is asked: sets of samples, and the tasks that turn a sample into numbers on a live model."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from fedunlearn.data.encoding import Example, Tokenizer
from fedunlearn.evaluation.bench import Bench
from fedunlearn.settings import settings

Record = dict[str, Any]
"""Scores and texts of one sample, as a line of JSON; always with its ``id``."""


@dataclass(frozen=True)
class Sample:
    """One thing that is asked.

    Attributes:
        id: stable and unique in its set, e.g. the row's number.
        prompt: a question, or the beginning of a text; may be empty for a passage.
        target: the right answer, the continuation, or the passage.
        paraphrases: other wordings of the right answer.
        wrong: wrong answers.
        choices: of a multiple-choice question, in order.
        right: index of the right choice.
        group: subject, where a set has several.
        rewordings: the question in other words.
    """

    id: str
    prompt: str
    target: str
    paraphrases: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    right: int = 0
    group: str = ""
    rewordings: tuple[str, ...] = ()


@settings
class Task:
    """How samples of a set are measured; entries are frozen dataclasses of their settings."""

    version: ClassVar[int] = 1
    """Raised when the same settings give other numbers, so that stored samples are not reused."""

    scores: ClassVar[tuple[str, ...]] = ()
    """Metrics whose scores every record has, high where the sample is known; the first leads."""

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some samples; each record depends on its own sample only."""
        raise NotImplementedError

    def lesson(self, tokenizer: Tokenizer, sample: Sample) -> Example | None:
        """The sample as something to be learned; ``None`` where it says only which choice."""
        return None

    @property
    def uses_reference(self) -> bool:
        """Whether a reference model changes the records."""
        return False

    def described(self) -> dict[str, Any]:
        """Kind, version and settings."""
        chosen = {one.name: _plain(getattr(self, one.name)) for one in fields(self)}
        return {"task": type(self).__name__, "version": self.version, **chosen}


@dataclass(frozen=True)
class SampleSet:
    """Samples that are measured alike and summed up together.

    Attributes:
        name: of the set; also of its file.
        task: how they are measured.
        samples: at least one, with ids that differ.
        source: where they come from, for people.
    """

    name: str
    task: Task
    samples: tuple[Sample, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.samples or len({one.id for one in self.samples}) != len(self.samples):
            raise ValueError(f"set {self.name!r} needs samples, each with an id of its own")

    @property
    def sha256(self) -> str:
        """Digest of what is asked and how; not of the model and not of the batch size."""
        text = json.dumps([self.task.described(), [asdict(one) for one in self.samples]])
        return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value


Records = Mapping[str, Sequence[Record]]
"""Set name to its records, in the order of its samples."""

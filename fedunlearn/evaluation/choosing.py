"""Multiple choice by the choices' own text: which is the likeliest answer to the question?"""

from collections.abc import Sequence
from typing import ClassVar

from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.prompts import PromptSettings, scored
from fedunlearn.evaluation.samples import Record, Sample, Task
from fedunlearn.metrics import ChoiceAccuracy
from fedunlearn.settings import settings


@settings
class Choosing(Task):
    """Mean token log-probability of each choice as an answer.

    Attributes:
        prompts: how questions are put.
    """

    scores: ClassVar[tuple[str, ...]] = ("choice_accuracy",)

    prompts: PromptSettings = PromptSettings()

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some questions."""
        examples = [
            scored(bench.tokenizer, one.prompt, choice, self.prompts)
            for one in samples
            for choice in one.choices
        ]
        seen = iter(bench.observe(examples))
        credit = ChoiceAccuracy()
        records: list[Record] = []
        for one in samples:
            values = [-next(seen).loss for _ in one.choices]
            records.append(
                {
                    "id": one.id,
                    "group": one.group,
                    "log_likelihoods": values,
                    "choice_accuracy": credit(values, one.right),
                    "tie": values.count(max(values)) > 1,
                }
            )
        return records

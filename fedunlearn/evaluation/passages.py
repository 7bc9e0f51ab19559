"""Running text: how well it is known, token by token."""

from collections.abc import Sequence

from fedunlearn.evaluation.attacks import AttackSettings, attack
from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.prompts import passage
from fedunlearn.evaluation.samples import Record, Sample, Task
from fedunlearn.settings import settings


@settings
class Passages(Task):
    """Passages, scored on every token after the first (or after BOS) by the attacks.

    Attributes:
        attacks: which.
        max_length: tokens of a passage; ``None``: all (muse_bench), 2048 in open-unlearning.
    """

    attacks: AttackSettings = AttackSettings(drops_last=False)
    max_length: int | None = None

    @property
    def uses_reference(self) -> bool:
        """Whether the attack ``reference`` is among the attacks."""
        return self.attacks.reference

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some passages."""
        examples = [
            passage(bench.tokenizer, one.target, max_length=self.max_length) for one in samples
        ]
        scores = attack(bench, examples, self.attacks)
        return [{"id": one.id, **found} for one, found in zip(samples, scores, strict=True)]

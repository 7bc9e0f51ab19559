"""Running text: how well it is known, token by token."""

from collections.abc import Sequence
from typing import Literal

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
        zlib_of: what ZLib compresses: the whole ``text`` (muse_bench), or the ``targets``, which
            lack a first token that is not BOS (open-unlearning).
    """

    attacks: AttackSettings = AttackSettings(drops_last=False)
    max_length: int | None = None
    zlib_of: Literal["text", "targets"] = "text"

    @property
    def uses_reference(self) -> bool:
        """Whether the attack ``reference`` is among the attacks."""
        return self.attacks.reference

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some passages."""
        examples = [
            passage(bench.tokenizer, one.target, max_length=self.max_length) for one in samples
        ]
        texts = [one.target for one in samples] if self.zlib_of == "text" else None
        scores = attack(bench, examples, self.attacks, texts=texts)
        return [{"id": one.id, **found} for one, found in zip(samples, scores, strict=True)]

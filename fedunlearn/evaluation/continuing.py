"""Verbatim memorisation: the beginning of a text is shown, what follows is generated."""

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from fedunlearn.data.encoding import Example, Tokenizer
from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.prompts import passage
from fedunlearn.evaluation.samples import Record, Sample, Task
from fedunlearn.metrics import ExtractionStrength, RougeLF1
from fedunlearn.settings import settings


@settings
class Continuing(Task):
    """MUSE's verbmem: ROUGE-L F1 of a continuation, and extraction strength of the true one.

    Attributes:
        max_new_tokens: longest continuation; the true one is cut to as many tokens, special
            tokens included, as in muse_bench.
        rouge: how the two are compared.
        strength: how extraction strength counts.
        max_length: tokens of the true continuation that extraction strength looks at.
    """

    scores: ClassVar[tuple[str, ...]] = ("rouge_l_f1", "extraction_strength")

    max_new_tokens: int = 128
    rouge: RougeLF1 = RougeLF1()
    strength: ExtractionStrength = ExtractionStrength()
    max_length: int = 2048

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some texts."""
        prompts = [bench.tokenizer.encode(one.prompt) for one in samples]
        texts = bench.generate(prompts, max_new_tokens=self.max_new_tokens)
        seen = bench.observe([self.lesson(bench.tokenizer, one) for one in samples])
        return [
            {
                "id": one.id,
                "generated": text,
                "rouge_l_f1": self.rouge(text, self._cut(bench, one.target)),
                "extraction_strength": self.strength(observed),
            }
            for one, text, observed in zip(samples, texts, seen, strict=True)
        ]

    def lesson(self, tokenizer: Tokenizer, sample: Sample) -> Example:
        """The true continuation after the beginning."""
        text = f" {sample.target}"
        return passage(tokenizer, text, prefix=sample.prompt, max_length=self.max_length)

    def _cut(self, bench: Bench, target: str) -> str:
        ids = bench.tokenizer.encode(target)[: self.max_new_tokens]
        return str(cast(Any, bench.tokenizer).decode(ids, skip_special_tokens=True))

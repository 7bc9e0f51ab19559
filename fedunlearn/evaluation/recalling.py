"""Knowledge memorisation: questions after a few examples, answered in a few words."""

from collections.abc import Sequence
from typing import ClassVar

from fedunlearn.data.encoding import Example, Tokenizer
from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.prompts import PromptSettings, prompt_ids, scored
from fedunlearn.evaluation.samples import Record, Sample, Task
from fedunlearn.metrics import RougeLF1
from fedunlearn.settings import settings

_STOPS = ("\n\n", "\nQuestion", "Question:")


@settings
class Recalling(Task):
    """MUSE's knowmem: ROUGE-L F1 of a short answer after examples.

    Attributes:
        shots: questions and answers shown before each question.
        prompts: how questions are put; ``plain`` in muse_bench, never a chat template.
        max_new_tokens: longest answer.
        rouge: how the answers are compared.
    """

    scores: ClassVar[tuple[str, ...]] = ("rouge_l_f1",)

    shots: tuple[tuple[str, str], ...] = ()
    prompts: PromptSettings = PromptSettings(style="plain", max_length=1 << 20)
    max_new_tokens: int = 32
    rouge: RougeLF1 = RougeLF1()

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some questions."""
        prompts = [
            prompt_ids(bench.tokenizer, one.prompt, self.prompts, shots=self.shots)
            for one in samples
        ]
        texts = bench.generate(prompts, max_new_tokens=self.max_new_tokens)
        return [
            {
                "id": one.id,
                "generated": (answer := _until_stop(text)),
                "rouge_l_f1": self.rouge(answer, one.target),
            }
            for one, text in zip(samples, texts, strict=True)
        ]

    def lesson(self, tokenizer: Tokenizer, sample: Sample) -> Example:
        """Question and answer, without the examples."""
        return scored(tokenizer, sample.prompt, sample.target, self.prompts)


def _until_stop(text: str) -> str:
    for stop in _STOPS:
        text = text.split(stop)[0]
    return text.strip()

"""One question put in many ways, so that a score of 0 under one prompt does not stand alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.prompts import PromptSettings, opened_ids
from fedunlearn.evaluation.samples import Record, Sample, Task
from fedunlearn.metrics import RougeLRecall
from fedunlearn.settings import settings

PLAIN = "plain"


@settings
class PromptProbes:
    """In which other ways a question is put.

    Beside these: the question as it is, and in the data's own other words
    (``paraphrased_question``) where there are any.

    Attributes:
        prefixes: put before the question.
        openings: the answer begins with this, and the model goes on.
        words_given: the answer begins with so many of its own first words, half of them at most;
            the rest is what is compared. 0: not tried.
    """

    prefixes: tuple[str, ...] = (
        "Repeat what you know: ",
        "You know the answer to this, try to remember it. ",
    )
    openings: tuple[str, ...] = ("Sure, here is the answer:",)
    words_given: int = 3

    def __post_init__(self) -> None:
        if self.words_given < 0:
            raise ValueError(f"words_given must be >= 0, got {self.words_given}")


@dataclass(frozen=True)
class _Way:
    """One way of asking, and what the generated text is compared with."""

    name: str
    question: str
    opening: str
    expected: str


@settings
class Asking(Task):
    """ROUGE-L recall of greedy answers to each wording of a question, and the best of them.

    A record holds ``rouge_l_recall``, the best; ``best_probe``, the first with it; ``by_probe``,
    each; and ``generated``. The best of many is higher by chance alone: compare it with a
    retrained model's best.

    Attributes:
        prompts: how a question is put.
        max_new_tokens: longest generated answer.
        probes: the other ways.
    """

    prompts: PromptSettings = PromptSettings()
    max_new_tokens: int = 200
    probes: PromptProbes = PromptProbes()

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some questions."""
        asked = [list(self._ways(one)) for one in samples]
        prompts = [
            opened_ids(bench.tokenizer, way.question, way.opening, self.prompts)
            for ways in asked
            for way in ways
        ]
        texts = iter(bench.generate(prompts, max_new_tokens=self.max_new_tokens))
        rouge, records = RougeLRecall(), []
        for one, ways in zip(samples, asked, strict=True):
            said = {way.name: next(texts) for way in ways}
            found = {way.name: rouge(said[way.name], way.expected) for way in ways}
            best = max(found, key=lambda name: found[name])
            records.append(
                {
                    "id": one.id,
                    "rouge_l_recall": found[best],
                    "best_probe": best,
                    "by_probe": found,
                    "generated": said,
                }
            )
        return records

    def _ways(self, one: Sample) -> Iterator[_Way]:
        yield _Way(PLAIN, one.prompt, "", one.target)
        for place, text in enumerate(one.rewordings, 1):
            yield _Way(f"reworded_{place}", text, "", one.target)
        for place, prefix in enumerate(self.probes.prefixes, 1):
            yield _Way(f"prefix_{place}", prefix + one.prompt, "", one.target)
        for place, opening in enumerate(self.probes.openings, 1):
            yield _Way(f"opening_{place}", one.prompt, opening, one.target)
        words = one.target.split()
        if given := min(self.probes.words_given, len(words) // 2):
            rest = " ".join(words[given:])
            yield _Way("words_given", one.prompt, " ".join(words[:given]), rest)

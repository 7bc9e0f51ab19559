"""Questions with answers: how probable they are, what is generated, which attacks succeed."""

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

from fedunlearn.data.encoding import Example, Tokenizer
from fedunlearn.evaluation.attacks import AttackSettings
from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.prompts import PromptSettings, prompt_ids, scored
from fedunlearn.evaluation.samples import Record, Sample, Task
from fedunlearn.metrics import (
    AnswerProbability,
    ArithmeticTruthRatio,
    ExtractionStrength,
    GeometricTruthRatio,
    Observed,
    OptionProbability,
    RougeLRecall,
)
from fedunlearn.settings import settings


@settings
class Answering(Task):
    """Questions of TOFU's form.

    A record holds the answer's ``loss`` and ``answer_probability``, ``extraction_strength``, the
    attacks' scores, and, where the sample has wrong answers, ``option_probability``,
    ``paraphrase_loss``, ``wrong_losses`` and both truth ratios (the right answer itself stands in
    for a paraphrase where there is none, as for TOFU's real authors). With generation,
    ``generated`` and ``rouge_l_recall``.

    Attributes:
        prompts: how questions are put.
        max_new_tokens: longest generated answer; 0: none is generated.
        attacks: ``None``: none.
        stabiliser: of truth ratios and option probabilities.
        strength: how extraction strength counts.
    """

    scores: ClassVar[tuple[str, ...]] = (
        "rouge_l_recall",
        "answer_probability",
        "extraction_strength",
    )

    prompts: PromptSettings = PromptSettings()
    max_new_tokens: int = 200
    attacks: AttackSettings | None = AttackSettings()
    stabiliser: float = 1e-10
    strength: ExtractionStrength = ExtractionStrength()

    @property
    def uses_reference(self) -> bool:
        """Whether the attack ``reference`` is among the attacks."""
        return self.attacks is not None and self.attacks.reference

    def measure(self, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        """Measure some questions: one pass for all their answers, one for what is generated."""
        answers = [
            (one.target, *one.paraphrases, *one.wrong) if one.wrong else (one.target,)
            for one in samples
        ]
        seen = self._observed(bench, samples, answers)
        records = [
            {"id": one.id, **self._scores(one, found)}
            for one, found in zip(samples, seen, strict=True)
        ]
        if self.max_new_tokens:
            self._generate(bench, samples, records)
        return records

    def lesson(self, tokenizer: Tokenizer, sample: Sample) -> Example:
        """Question and right answer."""
        return scored(tokenizer, sample.prompt, sample.target, self.prompts)

    def _observed(
        self, bench: Bench, samples: Sequence[Sample], answers: Sequence[Sequence[str]]
    ) -> list[list[Observed]]:
        examples = [
            [scored(bench.tokenizer, one.prompt, text, self.prompts) for text in texts]
            for one, texts in zip(samples, answers, strict=True)
        ]
        if self.attacks is None:
            all_seen = iter(bench.observe([*chain.from_iterable(examples)]))
            return [[next(all_seen) for _ in row] for row in examples]
        firsts = bench.attacked([row[0] for row in examples], gradients=self.attacks.grad_norm)
        rest = iter(bench.observe([*chain.from_iterable(row[1:] for row in examples)]))
        return [
            [first, *(next(rest) for _ in row[1:])]
            for first, row in zip(firsts, examples, strict=True)
        ]

    def _scores(self, sample: Sample, seen: Sequence[Observed]) -> Record:
        answer = seen[0]
        record: Record = {
            "tokens": answer.count,
            "loss": answer.loss,
            "answer_probability": AnswerProbability()(answer),
            "extraction_strength": self.strength(answer),
        }
        if self.attacks is not None:
            record |= {name: metric(answer) for name, metric in self.attacks.metrics.items()}
        if sample.wrong:
            told = len(sample.paraphrases)
            losses = [one.loss for one in seen]
            record |= self._ratios(losses[1 : 1 + told] or losses[:1], losses[1 + told :])
            options = OptionProbability(stabiliser=self.stabiliser)
            record["option_probability"] = options(answer.loss, losses[1 + told :])
        return record

    def _ratios(self, right: Sequence[float], wrong: Sequence[float]) -> Record:
        return {
            "paraphrase_loss": sum(right) / len(right),
            "wrong_losses": list(wrong),
            "truth_ratio_geometric": GeometricTruthRatio(stabiliser=self.stabiliser)(right, wrong),
            "truth_ratio_arithmetic": ArithmeticTruthRatio(stabiliser=self.stabiliser)(
                right, wrong
            ),
        }

    def _generate(self, bench: Bench, samples: Sequence[Sample], records: list[Record]) -> None:
        prompts = [prompt_ids(bench.tokenizer, one.prompt, self.prompts) for one in samples]
        texts = bench.generate(prompts, max_new_tokens=self.max_new_tokens)
        rouge = RougeLRecall()
        for sample, record, text in zip(samples, records, texts, strict=True):
            record |= {"generated": text, "rouge_l_recall": rouge(text, sample.target)}

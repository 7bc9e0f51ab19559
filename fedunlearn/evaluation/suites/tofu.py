"""TOFU: forget quality and model utility, and what open-unlearning adds to them."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Literal, cast

from fedunlearn.evaluation.answering import Answering
from fedunlearn.evaluation.attacks import AttackSettings
from fedunlearn.evaluation.prompts import PromptSettings
from fedunlearn.evaluation.results import Result, result, stated
from fedunlearn.evaluation.samples import SampleSet
from fedunlearn.evaluation.suites.interface import (
    SUITES,
    Suite,
    Table,
    forget_quality,
    membership,
    privleak,
)
from fedunlearn.evaluation.suites.rows import question_samples
from fedunlearn.metrics import (
    METRICS,
    ModelUtility,
    TruthRatio,
)
from fedunlearn.metrics.model_utility import PARTS, SETS
from fedunlearn.settings import settings

_RATIOS = ("truth_ratio_geometric", "truth_ratio_arithmetic")


@SUITES.register("tofu")
@settings
class TofuSuite(Suite):
    """TOFU's four sets and the holdout set of open-unlearning.

    Attributes:
        forget: size of the forget set.
        path: local copy of the data; ``None``: the hub.
        revision: of the data on the hub.
        prompts: how questions are put.
        attacks: on forget against holdout.
        max_new_tokens: longest generated answer.
        stabiliser: of truth ratios and option probabilities: 1e-10 as open-unlearning, 0 as TOFU.
        sample: so many questions of each set, drawn by its seed 0; ``None``: all.
    """

    forget: Literal["forget01", "forget05", "forget10"] = "forget10"
    path: str | None = None
    revision: str | None = None
    prompts: PromptSettings = PromptSettings()
    attacks: AttackSettings = AttackSettings()
    max_new_tokens: int = 200
    stabiliser: float = 1e-10
    sample: int | None = None

    def sample_sets(self) -> list[SampleSet]:
        """Read the five splits."""
        task = Answering(
            prompts=self.prompts,
            max_new_tokens=self.max_new_tokens,
            attacks=self.attacks,
            stabiliser=self.stabiliser,
        )
        kept = replace(task, attacks=None)
        holdout = replace(task, max_new_tokens=0)
        return [
            self._set("forget", f"{self.forget}_perturbed", task),
            self._set("holdout", self.forget.replace("forget", "holdout"), holdout),
            self._set("retain", "retain_perturbed", kept),
            self._set("real_authors", "real_authors_perturbed", kept),
            self._set("world_facts", "world_facts_perturbed", kept),
        ]

    @property
    def forget_sets(self) -> tuple[str, ...]:
        """The forget split."""
        return ("forget",)

    def _set(self, name: str, split: str, task: Answering) -> SampleSet:
        spec = {
            "source": "tofu",
            "split": split,
            "path": self.path,
            "revision": self.revision,
            "sample": self.sample,
        }
        return SampleSet(name, task, tuple(question_samples(spec)), f"tofu {split}")

    def results(self, table: Table) -> list[Result]:
        """Forget quality, truth ratios, utility and its parts, PrivLeak, attacks."""
        forget = [
            table.mean("forget", "answer_probability"),
            table.mean("forget", "rouge_l_recall"),
            table.mean("forget", "extraction_strength"),
            *(
                truth_ratio(table, "forget", ratio, self.stabiliser, forgotten=True)
                for ratio in _RATIOS
            ),
            forget_quality(table, "forget", _RATIOS[0], label="forget_quality"),
            forget_quality(table, "forget", _RATIOS[1], label="forget_quality_arithmetic"),
        ]
        kept = [one for name in SETS for one in self._kept(table, name)]
        attacked = membership(table, "forget", "holdout", self.attacks.metrics)
        return [
            *forget,
            privleak(table, "forget", "holdout", attack="min_k"),
            *kept,
            utility(kept, sum(len(table.records[name]) for name in SETS)),
            *attacked,
        ]

    def _kept(self, table: Table, name: str) -> list[Result]:
        if name == "retain":
            chance = table.mean(name, "answer_probability")
        else:
            chance = table.mean(name, "option_probability", stabiliser=self.stabiliser)
        return [
            replace(chance, name=f"{name}/probability"),
            table.mean(name, "rouge_l_recall"),
            replace(
                truth_ratio(table, name, _RATIOS[0], self.stabiliser), name=f"{name}/truth_ratio"
            ),
            truth_ratio(table, name, _RATIOS[1], self.stabiliser),
        ]


def truth_ratio(
    table: Table, name: str, ratio: str, stabiliser: float, *, forgotten: bool = False
) -> Result:
    """Mean of min(R, 1/R) on what is to be forgotten, of max(0, 1 - R) elsewhere."""
    metric = cast(TruthRatio, METRICS.build(ratio, {"stabiliser": stabiliser}))
    score = metric.forget if forgotten else metric.retain
    scored = "mean of min(R, 1/R)" if forgotten else "mean of max(0, 1 - R)"
    found = result(
        f"{name}/{ratio}",
        ratio,
        metric,
        table.column(name, ratio),
        lambda known: fmean(score(one) for one in known),
    )
    return replace(found, options={**found.options, "summed_up_as": scored})


def utility(kept: Sequence[Result], n: int) -> Result:
    """Model utility of nine results; ``None`` with the reason where one of them has no value."""
    metric = ModelUtility()
    values = {one.name: one.value for one in kept}
    wanted = [f"{name}/{part}" for name in SETS for part in PARTS]
    missing = [name for name in wanted if values.get(name) is None]
    if missing:
        reason = f"no value of {', '.join(missing)}"
        return stated("model_utility", "model_utility", metric, None, n, reason=reason)
    value = metric({name: one for name, one in values.items() if one is not None})
    return stated("model_utility", "model_utility", metric, value, n)

"""Makes every merge of a run from one set of summaries, and measures each on the live model.

No client runs again: what a merge needs of the summaries is computed once per method and reused
for every gamma and epsilon, which are scalars and budgets on top of it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedunlearn.aggregation import Merger, MergeReport, MergeResult, MergeSettings, Multipliers
from fedunlearn.errors import RunError
from fedunlearn.evaluation import EvaluationSettings, QuestionBank, SetScores, evaluate
from fedunlearn.models.loading import LoadedModel
from fedunlearn.models.patching import applied
from fedunlearn.progress import Progress
from fedunlearn.scores import SetReport, summarise
from fedunlearn.summary import ClientSummary


@dataclass(frozen=True)
class Trial:
    """A merge at one gamma, to be made and measured.

    Attributes:
        merge: its name in the config.
        chosen: its settings in the config.
        gamma: the scale it is tried at.
    """

    merge: str
    chosen: MergeSettings
    gamma: float

    @property
    def configured(self) -> bool:
        """This is the gamma that the config gives the merge."""
        return self.gamma == self.chosen.gamma


@dataclass(frozen=True)
class Finding:
    """A trial's report and scores."""

    trial: Trial
    report: MergeReport
    sets: dict[str, SetReport]


def plan_trials(
    merges: Mapping[str, MergeSettings], swept: Mapping[str, Sequence[float]]
) -> list[Trial]:
    """List every merge at its own gamma and, where it is swept, at the others, rising."""
    return [
        Trial(name, chosen, gamma)
        for name, chosen in merges.items()
        for gamma in sorted({chosen.gamma, *swept.get(name, ())})
    ]


class MergeBench:
    """Makes merges of the same summaries, sharing between them what does not depend on gamma.

    Args:
        summaries: of one round.
        ceilings: retain client to the largest budget it may have, where a merge has any.
    """

    def __init__(
        self, summaries: Sequence[ClientSummary], ceilings: Mapping[str, float] | None = None
    ) -> None:
        self._summaries = summaries
        self._ceilings = ceilings or {}
        self._mergers: dict[tuple[float, float], Merger] = {}

    def check(self, chosen: MergeSettings) -> None:
        """Check, before any work, that a merge can be made of these summaries.

        Raises:
            InputError: an unknown method or option, or a client sent fewer Fisher entries than
                the merge needs.
        """
        Merger(self._summaries, chosen.alpha, chosen.eps0).raw(chosen.method, chosen.options)

    def merge(
        self, chosen: MergeSettings, *, gamma: float, start: Multipliers | None = None
    ) -> MergeResult:
        """Make one merge at ``gamma``, within the budget that ``chosen`` comes to.

        A relative budget is resolved at the gamma of ``chosen`` and then stays the same number
        while gamma varies, as the paper's budgets do.

        Args:
            chosen: the merge.
            gamma: its scale.
            start: multipliers of the same merge at another gamma; the solver begins there.

        Raises:
            InputError: the method, its options or its budget do not fit the clients.
        """
        key = chosen.alpha, chosen.eps0
        if key not in self._mergers:
            # Trials come merge by merge, so one raw merge at a time is enough to keep.
            self._mergers = {key: Merger(self._summaries, *key, keep=1)}
        merger = self._mergers[key]
        raw = merger.raw(chosen.method, chosen.options)
        budget = {
            client: min(value, self._ceilings.get(client, value)) if math.isfinite(value) else value
            for client, value in merger.resolve(raw, chosen).items()
        }
        return merger.finish(raw, replace(chosen, gamma=gamma), budget, start=start)


class Exam:
    """Measures the base model, as it is or with an update applied; counts the questions asked."""

    def __init__(
        self,
        base: LoadedModel,
        bank: QuestionBank,
        chosen: EvaluationSettings,
        *,
        progress: Progress,
        rounds: int,
    ) -> None:
        self._base, self._bank, self._chosen = base, bank, chosen
        self._progress = progress
        self._total = rounds * bank.size
        self._before = 0

    def base_scores(self) -> dict[str, SetScores]:
        """Measure the base model, question by question."""
        return self._measure(wordings=True)

    def scores(self, merged: MergeResult, *, wordings: bool = True) -> dict[str, SetScores]:
        """Measure the model with an update; its weights are restored bit for bit.

        Args:
            merged: the update.
            wordings: the truth ratio, too, which costs most of the passes that score answers.
        """
        with applied(self._base.model, merged.delta):
            return self._measure(wordings=wordings)

    def _measure(self, *, wordings: bool) -> dict[str, SetScores]:
        measured = evaluate(
            self._base, self._bank, self._chosen, wordings=wordings, progress=self._advance
        )
        self._before += self._bank.size
        return measured

    def skip(self) -> None:
        """Count a model whose scores are known."""
        self._before += self._bank.size
        self._advance(0, self._total)

    def _advance(self, done: int, total: int) -> None:
        self._progress(self._before + done, self._total)


def run_trials(
    trials: Sequence[Trial], bench: MergeBench, exam: Exam
) -> Iterator[tuple[Finding, MergeResult]]:
    """Make and measure every trial; an update is dropped before the next is made."""
    for trial in trials:
        result = bench.merge(trial.chosen, gamma=trial.gamma)
        # points that only draw a curve are not asked for what no curve shows
        measured = exam.scores(result, wordings=trial.configured)
        yield Finding(trial, result.report, summarise(measured)), result


def check_base(summaries: Sequence[ClientSummary], sha256: str) -> None:
    """Refuse to evaluate an update on a model it was not made for.

    Raises:
        RunError: the clients started from another base model.
    """
    theirs = summaries[0].meta.base_model_sha256
    if theirs != sha256:
        raise RunError(
            f"the clients started from base model {summaries[0].meta.start}, the server has "
            f"{sha256[:12]}; use the same model, dtype and expert on all sides"
        )

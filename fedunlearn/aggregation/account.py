"""Writes the report of a merge: settings, clients, warnings, and the account of each weight."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from fedunlearn.aggregation.choices import MergeSettings
from fedunlearn.aggregation.finishing import FinishedTensor
from fedunlearn.aggregation.outcome import MergedClient, MergeReport, TensorReport
from fedunlearn.aggregation.raw import RawMerge
from fedunlearn.aggregation.tensor_source import TensorSource
from fedunlearn.objectives import OBJECTIVES
from fedunlearn.summary import ClientSummary


@dataclass(frozen=True)
class Account:
    """Gathers what the report of a merge needs.

    Attributes:
        source: the summaries.
        raw: the raw merge, whose method knows what its survey found.
        merge: the settings.
        resolved: retain client's id to its budget a weight.
    """

    source: TensorSource
    raw: RawMerge
    merge: MergeSettings
    resolved: Mapping[str, float]
    tensors: dict[str, TensorReport] = field(default_factory=dict, init=False)
    _empty: set[tuple[str, str]] = field(default_factory=set, init=False)

    def add(self, finished: FinishedTensor) -> None:
        """Note a weight."""
        self.tensors[finished.name] = finished.report
        self._empty.update((owner, finished.name) for owner in finished.empty)

    def report(self) -> MergeReport:
        """Write the report, when all weights are there."""
        merge, first = self.merge, self.source.summaries[0]
        return MergeReport(
            method=merge.method,
            options=self._options(),
            gamma=merge.gamma,
            alpha=merge.alpha,
            eps0=merge.eps0,
            epsilon=merge.epsilon,
            epsilon_resolved=dict(self.resolved),
            solver=merge.solver,
            mean_damage=self._mean_damage(),
            base_model=first.meta.base_model,
            base_model_sha256=first.meta.base_model_sha256,
            expert=first.meta.expert,
            expert_sha256=first.meta.expert_sha256,
            transposed=first.lora.transposed,
            clients=tuple(
                MergedClient(s.meta.client_id, s.meta.role, s.meta.domain, s.meta.num_examples)
                for s in self.source.summaries
            ),
            facts=self.raw.settled.facts(
                {s.meta.client_id: s.meta.role for s in self.source.summaries},
                math.hypot(*(one.raw_norm for one in self.tensors.values())),
            ),
            warnings=(*self._warnings(), *_empty(self._empty)),
            tensors=self.tensors,
        )

    def _options(self) -> dict[str, Any]:
        """All hyperparameters of the method, those left at their defaults too."""
        method = self.raw.method
        return asdict(method) if is_dataclass(method) else {}

    def _mean_damage(self) -> float:
        found = [value for one in self.tensors.values() for value in one.damage_before.values()]
        return sum(found) / len(found) if found else 0.0

    def _warnings(self) -> Iterator[str]:
        roles = {summary.meta.role for summary in self.source.summaries}
        if "forget" not in roles:
            yield "no forget client took part: nothing is unlearned"
        if "retain" not in roles:
            yield "no retain client took part: nothing protects what must stay"
        yield from filter(None, map(_divergence, self.source.summaries))
        if self.raw.method.needs_learnt and (unlearnt := self._unlearnt()):
            yield (
                f"{self.merge.method} steps back from what forget clients learnt, but "
                f"{len(unlearnt)} of them, e.g. {unlearnt[0]}, trained to unlearn it: this merge "
                "teaches it; use another method, or fine-tune them on it"
            )
        if uncertified := [name for name, one in self.tensors.items() if not one.certified]:
            yield (
                f"the projection of {len(uncertified)} weights is not certified as the nearest, "
                f"e.g. {uncertified[0]}: {self.tensors[uncertified[0]].status}"
            )

    def _unlearnt(self) -> list[str]:
        """Forget clients that trained with one of our unlearning objectives."""
        return [
            f"{s.meta.client_id!r} ({s.meta.objective})"
            for s in self.source.summaries
            if s.meta.role == "forget"
            and s.meta.objective in OBJECTIVES
            and OBJECTIVES[s.meta.objective].role == "forget"
        ]


def _divergence(summary: ClientSummary) -> str | None:
    """Say that a client's training diverged, and what its update is then."""
    step = summary.meta.training.get("diverged_at_step")
    if not isinstance(step, int):
        return None
    return (
        f"training of {summary.meta.role} client {summary.meta.client_id!r} "
        f"({summary.meta.domain}) diverged at step {step}: its update is the last good one before "
        "that; lower its learning rate or stop earlier"
    )


def _empty(fishers: Collection[tuple[str, str]]) -> Iterator[str]:
    """Warn of Fishers that weigh nothing, one line an owner."""
    for owner in sorted({owner for owner, _ in fishers}):
        names = sorted(name for who, name in fishers if who == owner)
        yield f"the Fisher of {owner!r} is all zero in {len(names)} weights, e.g. {names[0]}"

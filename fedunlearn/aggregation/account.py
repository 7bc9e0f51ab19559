"""Writes the report of a merge: settings, clients, warnings, and the account of each weight."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from fedunlearn.aggregation.choices import MergeSettings
from fedunlearn.aggregation.outcome import MergedClient, MergeReport, TensorReport
from fedunlearn.aggregation.tensor_source import TensorSource
from fedunlearn.merging import MergeMethod


@dataclass(frozen=True)
class Account:
    """Gathers what the report of a merge needs.

    Attributes:
        source: the summaries.
        method: with its hyperparameters.
        merge: the settings.
        resolved: retain client's id to its budget a weight.
        tensors: base parameter name to its report.
    """

    source: TensorSource
    method: MergeMethod
    merge: MergeSettings
    resolved: Mapping[str, float]
    tensors: dict[str, TensorReport]

    def report(self, empty_fishers: Collection[tuple[str, str]]) -> MergeReport:
        """Write the report.

        Args:
            empty_fishers: (domain or retain client, base parameter name) pairs whose processed
                Fisher is all zero.
        """
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
            transposed=first.lora.transposed,
            clients=tuple(
                MergedClient(s.meta.client_id, s.meta.role, s.meta.domain, s.meta.num_examples)
                for s in self.source.summaries
            ),
            warnings=(*self._warnings(), *_empty(empty_fishers)),
            tensors=self.tensors,
        )

    def _options(self) -> dict[str, Any]:
        """All hyperparameters of the method, those left at their defaults too."""
        return asdict(self.method) if is_dataclass(self.method) else {}

    def _mean_damage(self) -> float:
        found = [value for one in self.tensors.values() for value in one.damage_before.values()]
        return sum(found) / len(found) if found else 0.0

    def _warnings(self) -> Iterator[str]:
        roles = {summary.meta.role for summary in self.source.summaries}
        if "forget" not in roles:
            yield "no forget client took part: nothing is unlearned"
        if "retain" not in roles:
            yield "no retain client took part: nothing protects what must stay"
        if uncertified := [name for name, one in self.tensors.items() if not one.certified]:
            yield (
                f"the projection of {len(uncertified)} weights is not certified as the nearest, "
                f"e.g. {uncertified[0]}: {self.tensors[uncertified[0]].status}"
            )


def _empty(fishers: Collection[tuple[str, str]]) -> Iterator[str]:
    """Warn of Fishers that weigh nothing, one line an owner."""
    for owner in sorted({owner for owner, _ in fishers}):
        names = sorted(name for who, name in fishers if who == owner)
        yield f"the Fisher of {owner!r} is all zero in {len(names)} weights, e.g. {names[0]}"

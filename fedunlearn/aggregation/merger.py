"""Merges summaries: raw merge, scale, projection, account (FIRM, section 4.2)."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from fedunlearn.aggregation.account import Account
from fedunlearn.aggregation.choices import MergeSettings
from fedunlearn.aggregation.epsilon import resolve_epsilon
from fedunlearn.aggregation.outcome import MergeResult, TensorReport
from fedunlearn.aggregation.tensor_source import TensorSource
from fedunlearn.errors import InputError
from fedunlearn.merging import MERGE_METHODS, MergeMethod, TensorInputs, settle
from fedunlearn.summary import ClientSummary
from fedunlearn.tensors.dual import damage
from fedunlearn.tensors.projection import project

Multipliers = Mapping[str, Mapping[str, float]]
"""Base parameter name to retain client's id to dual variable lambda (eq. 8)."""

_RESIDUALS = ("stationarity", "feasibility", "dual_feasibility", "complementarity")


class RawMerge:
    """The raw merge (gamma = 1, no projection) of all weights by one method.

    Args:
        source: the summaries.
        method: the merge method.
        remember: keep each weight's raw merge; otherwise it is computed again when asked for.
    """

    def __init__(self, source: TensorSource, method: MergeMethod, *, remember: bool) -> None:
        self.method = method
        self._source = source
        self._remember = remember
        self._known: dict[str, Tensor] = {}
        self.empty_fishers: set[tuple[str, str]] = set()

    def __getitem__(self, name: str) -> Tensor:
        """Raw merge of one weight, float32, of the base weight's shape."""
        if name in self._known:
            return self._known[name]
        inputs = self._inputs(name)
        merged = self.settled(inputs)
        self._source.retain_fishers(name, inputs)
        sources = [*inputs.retain_clients, *(inputs.forget_domains if self.needs_fisher else ())]
        self.empty_fishers |= {(one.name, name) for one in sources if not bool(one.fisher.any())}
        if self._remember:
            self._known[name] = merged
        return merged

    def _inputs(self, name: str) -> TensorInputs:
        return self._source.inputs(name, forget_fisher=self.method.needs_fisher)

    @cached_property
    def settled(self) -> MergeMethod:
        """The method once it has surveyed all weights, if it is one that does."""
        return settle(self.method, lambda: map(self._inputs, self._source.names))

    @property
    def needs_fisher(self) -> bool:
        """Whether the method weighs forget clients by their Fishers."""
        return self.method.needs_fisher

    @cached_property
    def mean_damage(self) -> float:
        """Mean damage (eq. 6) over retain clients and weights; 0 without a retain client."""
        found = [
            damage(self[name], fisher)
            for name in self._source.names
            for fisher in self._source.retain_fishers(name)
        ]
        return sum(found) / len(found) if found else 0.0


class Merger:
    """Merges one set of summaries as often as wanted; no client runs again.

    A sweep over gamma and epsilon computes pooling, Fisher processing and the raw merge once for
    each method.

    Args:
        summaries: of one round, in any order.
        alpha: fraction of Fisher entries kept (eq. 3).
        eps0: stabiliser of eq. 3 and eq. 4.
        keep: how many methods' raw merges to keep in memory, each as large as the adapted
            weights in float32. 0 keeps nothing, so that one weight is in memory at a time.

    Raises:
        SummaryError: summaries that do not belong together.
    """

    def __init__(
        self,
        summaries: Sequence[ClientSummary],
        alpha: float = 0.1,
        eps0: float = 1e-8,
        *,
        keep: int = 4,
    ) -> None:
        self._source = TensorSource(summaries, alpha=alpha, eps0=eps0, remember=keep > 0)
        self._keep = keep
        self._raw: OrderedDict[str, RawMerge] = OrderedDict()

    def raw(self, method: str, options: Mapping[str, Any] | None = None) -> RawMerge:
        """The raw merge by a method, shared by all who ask for the same.

        Raises:
            InputError: an unknown method or option.
        """
        built = MERGE_METHODS.build(method, options or {})
        key = f"{method}: {built!r}"
        if key not in self._raw:
            self._raw[key] = RawMerge(self._source, built, remember=self._keep > 0)
        self._raw.move_to_end(key)
        while len(self._raw) > max(1, self._keep):
            self._raw.popitem(last=False)
        return self._raw[key]

    def resolve(self, raw: RawMerge, merge: MergeSettings) -> dict[str, float]:
        """Budget a weight, by retain client's id.

        Damage grows with the square of gamma, so a relative budget takes one pass at gamma = 1
        that serves every gamma.

        Raises:
            InputError: a per-client budget that misses a retain client or names a stranger.
        """
        return resolve_epsilon(
            merge.epsilon,
            self._source.retain_ids,
            mean_damage=lambda: merge.gamma**2 * raw.mean_damage,
        )

    def finish(
        self,
        raw: RawMerge,
        merge: MergeSettings,
        resolved: Mapping[str, float],
        *,
        start: Multipliers | None = None,
    ) -> MergeResult:
        """Scale and project a raw merge.

        Args:
            raw: from :meth:`raw`, by the method of ``merge``.
            merge: gamma and solver are used.
            resolved: from :meth:`resolve`.
            start: multipliers at a neighbouring gamma or budget, to save the solver iterations.

        Raises:
            InputError: ``merge`` asks for an alpha or eps0 that this merger was not made for.
        """
        self._check_made_for(merge)
        delta: dict[str, Tensor] = {}
        reports: dict[str, TensorReport] = {}
        for name in self._source.names:
            near = start[name] if start else {}
            delta[name], reports[name] = self._finish_tensor(name, raw, merge, resolved, near)
        account = Account(self._source, raw.method, raw.settled, merge, resolved, reports)
        return MergeResult(delta, account.report(raw.empty_fishers))

    def merge(self, merge: MergeSettings) -> MergeResult:
        """Do all of it: raw merge, budget, scale, projection.

        Raises:
            InputError: an unknown method or option, a budget that does not fit the clients, or
                an alpha or eps0 that this merger was not made for.
        """
        self._check_made_for(merge)
        raw = self.raw(merge.method, merge.options)
        return self.finish(raw, merge, self.resolve(raw, merge))

    def _finish_tensor(
        self,
        name: str,
        raw: RawMerge,
        merge: MergeSettings,
        resolved: Mapping[str, float],
        near: Mapping[str, float],
    ) -> tuple[Tensor, TensorReport]:
        merged, ids = raw[name], self._source.retain_ids
        fishers = self._source.retain_fishers(name)
        budgets = [resolved[client_id] for client_id in ids]
        start = [near.get(client_id, 0.0) for client_id in ids]
        scaled = merged * merge.gamma
        try:
            done = project(scaled, fishers, budgets, solver=merge.solver, start=start)
        except ValueError as fault:
            raise InputError(f"{name!r} at gamma={merge.gamma}: {fault}") from fault
        report = TensorReport(
            norm=done.update.double().norm().item(),
            raw_norm=merged.double().norm().item(),
            multipliers=dict(zip(ids, done.multipliers, strict=True)),
            damage_before=dict(zip(ids, done.damage_before, strict=True)),
            damage_after=dict(zip(ids, done.damage_after, strict=True)),
            status=str(done.status),
            certified=done.certified,
            iterations=done.stats.iterations,
            residuals={name: getattr(done.stats, name) for name in _RESIDUALS},
        )
        return done.update, report

    def _check_made_for(self, merge: MergeSettings) -> None:
        for name in ("alpha", "eps0"):
            asked, have = getattr(merge, name), getattr(self._source, name)
            if asked != have:
                raise InputError(f"merge asks for {name}={asked}, its Fishers were made for {have}")


def merge_summaries(summaries: Sequence[ClientSummary], merge: MergeSettings) -> MergeResult:
    """Merge once, with one weight of all clients in memory at a time, beside the result.

    Args:
        summaries: of one round, in any order; the result does not depend on it.
        merge: method, scale and budget.

    Raises:
        SummaryError: summaries that do not belong together.
        InputError: an unknown method or option, or a budget that does not fit the clients.
    """
    return Merger(summaries, merge.alpha, merge.eps0, keep=0).merge(merge)

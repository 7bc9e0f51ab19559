"""Merges summaries: raw merge, scale, projection, account (FIRM, section 4.2)."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fedunlearn.aggregation.account import Account
from fedunlearn.aggregation.choices import MergeSettings
from fedunlearn.aggregation.epsilon import resolve_epsilon
from fedunlearn.aggregation.finishing import FinishedTensor, finish_tensor
from fedunlearn.aggregation.outcome import MergeReport, MergeResult
from fedunlearn.aggregation.raw import RawMerge
from fedunlearn.aggregation.spread import Spread, in_turn
from fedunlearn.aggregation.tensor_source import TensorSource
from fedunlearn.errors import InputError
from fedunlearn.merging import MERGE_METHODS
from fedunlearn.summary import ClientSummary

Multipliers = Mapping[str, Mapping[str, float]]
"""Base parameter name to retain client's id to dual variable lambda (eq. 8)."""


class Merging:
    """One merge under way: its weights come one by one, and then its report."""

    def __init__(self, tensors: Iterator[FinishedTensor], account: Account) -> None:
        self._tensors, self._account = tensors, account

    def __iter__(self) -> Iterator[FinishedTensor]:
        """Finish the next weight; once only."""
        for one in self._tensors:
            self._account.add(one)
            yield one

    def report(self) -> MergeReport:
        """The report, once all weights have come."""
        return self._account.report()

    def result(self) -> MergeResult:
        """Finish all weights, and hold them in memory."""
        delta = {one.name: one.update for one in self}
        return MergeResult(delta, self.report())


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
        spread: does the work on weights that are not kept.

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
        spread: Spread = in_turn,
    ) -> None:
        self._source = TensorSource(summaries, alpha=alpha, eps0=eps0)
        self._keep, self._spread = keep, spread
        self._raw: OrderedDict[str, RawMerge] = OrderedDict()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Base parameter name to the shape of the weight."""
        return self._source.shapes

    def raw(self, method: str, options: Mapping[str, Any] | None = None) -> RawMerge:
        """The raw merge by a method, shared by all who ask for the same.

        Raises:
            InputError: an unknown method or option.
        """
        built = MERGE_METHODS.build(method, options or {})
        key = f"{method}: {built!r}"
        if key not in self._raw:
            self._raw[key] = RawMerge(
                self._source, built, remember=self._keep > 0, spread=self._spread
            )
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

    def begin(
        self,
        raw: RawMerge,
        merge: MergeSettings,
        resolved: Mapping[str, float],
        *,
        start: Multipliers | None = None,
        place: Callable[[str], Tensor] | None = None,
    ) -> Merging:
        """Scale and project a raw merge, weight by weight.

        Args:
            raw: from :meth:`raw`, by the method of ``merge``.
            merge: gamma and solver are used.
            resolved: from :meth:`resolve`.
            start: multipliers at a neighbouring gamma or budget, to save the solver iterations.
            place: where the update of a weight is put, if nothing is kept and the work is done
                in this process; by default in memory of its own.

        Raises:
            InputError: ``merge`` asks for an alpha or eps0 that this merger was not made for.
        """
        self._check_made_for(merge)
        budgets = {client_id: resolved[client_id] for client_id in self._source.retain_ids}
        work = partial(
            finish_tensor,
            gamma=merge.gamma,
            budgets=budgets,
            solver=merge.solver,
            start=start or {},
            owned=not raw.remembers,
        )
        return Merging(raw.each(work, place=place), Account(self._source, raw, merge, resolved))

    def finish(
        self,
        raw: RawMerge,
        merge: MergeSettings,
        resolved: Mapping[str, float],
        *,
        start: Multipliers | None = None,
    ) -> MergeResult:
        """Do :meth:`begin` to the end, with the whole update in memory."""
        return self.begin(raw, merge, resolved, start=start).result()

    def stream(
        self, merge: MergeSettings, *, place: Callable[[str], Tensor] | None = None
    ) -> Merging:
        """Begin a merge from its settings: raw merge, budget, scale, projection.

        Args:
            merge: method, scale and budget.
            place: see :meth:`begin`.

        Raises:
            InputError: an unknown method or option, a budget that does not fit the clients, or
                an alpha or eps0 that this merger was not made for.
        """
        self._check_made_for(merge)
        raw = self.raw(merge.method, merge.options)
        return self.begin(raw, merge, self.resolve(raw, merge), place=place)

    def merge(self, merge: MergeSettings) -> MergeResult:
        """Do :meth:`stream` to the end, with the whole update in memory."""
        return self.stream(merge).result()

    def _check_made_for(self, merge: MergeSettings) -> None:
        for name in ("alpha", "eps0"):
            asked, have = getattr(merge, name), getattr(self._source, name)
            if asked != have:
                raise InputError(f"merge asks for {name}={asked}, its Fishers were made for {have}")


def merge_summaries(
    summaries: Sequence[ClientSummary], merge: MergeSettings, *, spread: Spread = in_turn
) -> MergeResult:
    """Merge once, with one weight of all clients in memory at a time, beside the result.

    Args:
        summaries: of one round, in any order; the result does not depend on it.
        merge: method, scale and budget.
        spread: who works on the weights.

    Raises:
        SummaryError: summaries that do not belong together.
        InputError: an unknown method or option, or a budget that does not fit the clients.
    """
    return Merger(summaries, merge.alpha, merge.eps0, keep=0, spread=spread).merge(merge)

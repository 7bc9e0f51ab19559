"""The raw merge of a weight (gamma = 1, no projection), with what the projection needs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import torch
from torch import Tensor

from fedunlearn.aggregation.retained import Retained, retained_of
from fedunlearn.aggregation.spread import Spread, in_turn
from fedunlearn.aggregation.tensor_source import TensorSource
from fedunlearn.merging import MergeMethod, TensorInputs, settle_by
from fedunlearn.tensors.sums import norm

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class RawTensor:
    """The raw merge of one weight.

    Attributes:
        merged: of the weight's shape, float32.
        norm: its Frobenius norm.
        retained: the retain clients' processed Fishers.
        damages: b_k (eq. 6) of it, a retain client each, in the order of their ids.
        empty: domains and retain clients whose processed Fisher is all zero.
    """

    merged: Tensor
    norm: float
    retained: Retained
    damages: tuple[float, ...]
    empty: frozenset[str]


class RawMerge:
    """The raw merges of all weights by one method.

    Args:
        source: the summaries.
        method: the merge method.
        remember: keep each weight's raw merge; otherwise it is computed again when asked for.
        spread: does the work on weights that are not remembered.
    """

    def __init__(
        self,
        source: TensorSource,
        method: MergeMethod,
        *,
        remember: bool,
        spread: Spread = in_turn,
    ) -> None:
        self.method = method
        self.remembers = remember
        self._source, self._spread = source, spread
        self._known: dict[str, RawTensor] = {}

    def each(self, work: Callable[[str, RawTensor], R]) -> Iterator[R]:
        """Apply ``work`` to the name and the raw merge of every weight, in the order of names."""
        names = self._source.names
        if self.remembers:
            return (work(name, self._remembered(name)) for name in names)
        return self._spread(partial(_merge_then, self._source, self.settled, work), names)

    @cached_property
    def settled(self) -> MergeMethod:
        """The method once it has surveyed all weights, if it is one that does."""
        return settle_by(
            self.method,
            lambda method: self._spread(partial(_survey, self._source, method), self._source.names),
        )

    @cached_property
    def mean_damage(self) -> float:
        """Mean damage (eq. 6) over retain clients and weights; 0 without a retain client."""
        found = [value for damages in self.each(_damages) for value in damages]
        return sum(found) / len(found) if found else 0.0

    def _remembered(self, name: str) -> RawTensor:
        if name not in self._known:
            self._known[name] = merge_tensor(self._source, self.settled, name)
        return self._known[name]


def _survey(source: TensorSource, method: MergeMethod, name: str) -> Tensor:
    return method.survey(source.inputs(name, forget_fisher=method.needs_fisher))


def _damages(name: str, raw: RawTensor) -> tuple[float, ...]:
    return raw.damages


def _merge_then(
    source: TensorSource, method: MergeMethod, work: Callable[[str, RawTensor], R], name: str
) -> R:
    return work(name, merge_tensor(source, method, name))


def merge_tensor(source: TensorSource, method: MergeMethod, name: str) -> RawTensor:
    """Merge one weight by a settled method, in one pass over its rows."""
    inputs = source.inputs(name, forget_fisher=method.needs_fisher)
    empty = frozenset(_empty(inputs, forget=method.needs_fisher))
    merge = method.on(inputs)
    merged = torch.empty(inputs.shape)

    def of(block: TensorInputs) -> Retained:
        merged[block.rows] = merge(block)
        return retained_of(block)

    retained = Retained.joined(list(inputs.each_block(of)))
    damages = retained.damages(retained.of(merged))
    return RawTensor(merged, norm(merged), retained, damages, empty)


def _empty(inputs: TensorInputs, *, forget: bool) -> Iterator[str]:
    """Owners of Fishers of which nothing is kept."""
    for name, clients in (*inputs.groups("retain"), *(inputs.groups("forget") if forget else ())):
        if not inputs.fisher_cut(clients).keeps_any:
            yield name

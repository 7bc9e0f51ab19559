"""The raw merge of a weight (gamma = 1, no projection), with what the projection needs."""

import math
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
from fedunlearn.tensors.sums import square_sum

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class RawTensor:
    """The raw merge of one weight.

    Attributes:
        merged: of the weight's shape, float32.
        norm: its Frobenius norm.
        damages: b_k (eq. 6) of it, a retain client each, in the order of their ids.
        empty: domains and retain clients whose processed Fisher is all zero.
        parts: the retain clients' processed Fishers, block by block.
    """

    merged: Tensor
    norm: float
    damages: tuple[float, ...]
    empty: frozenset[str]
    parts: tuple[Retained, ...]

    @cached_property
    def retained(self) -> Retained:
        """The retain clients' processed Fishers."""
        return Retained.joined(self.parts)


class RawMerge:
    """The raw merges of all weights by one method.

    Args:
        source: the summaries.
        method: the merge method.
        remember: keep each weight's raw merge; otherwise it is computed again when asked for.
        spread: does the work on weights that are not remembered.

    Raises:
        SummaryError: a client sent fewer Fisher entries than the method and alpha need.
    """

    def __init__(
        self,
        source: TensorSource,
        method: MergeMethod,
        *,
        remember: bool,
        spread: Spread = in_turn,
    ) -> None:
        source.require_fishers(forget=method.needs_fisher, whole=method.needs_whole_fisher)
        self.method = method
        self.remembers = remember
        self._source, self._spread = source, spread
        self._known: dict[str, RawTensor] = {}

    def each(
        self, work: Callable[[str, RawTensor], R], *, place: Callable[[str], Tensor] | None = None
    ) -> Iterator[R]:
        """Apply ``work`` to the name and the raw merge of every weight, in the order of names.

        Args:
            work: what to do.
            place: where the raw merge of a weight is put, if the work is done here and nothing
                is remembered; by default in memory of its own.
        """
        names = self._source.names
        if self.remembers:
            return (work(name, self._remembered(name)) for name in names)
        if self._spread is not in_turn:
            place = None
        return self._spread(partial(_merge_then, self._source, self.settled, work, place), names)

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
    source: TensorSource,
    method: MergeMethod,
    work: Callable[[str, RawTensor], R],
    place: Callable[[str], Tensor] | None,
    name: str,
) -> R:
    return work(name, merge_tensor(source, method, name, out=place(name) if place else None))


def merge_tensor(
    source: TensorSource, method: MergeMethod, name: str, *, out: Tensor | None = None
) -> RawTensor:
    """Merge one weight by a settled method, in one pass over its rows.

    Args:
        source: the summaries.
        method: settled.
        name: base parameter name.
        out: where the raw merge is put, contiguous, float32; by default in memory of its own.
    """
    inputs = source.inputs(name, forget_fisher=method.needs_fisher)
    empty = frozenset(_empty(inputs, forget=method.needs_fisher))
    merge = method.on(inputs)
    merged = torch.empty(inputs.shape) if out is None else out

    def of(block: TensorInputs) -> tuple[Retained, float, tuple[float, ...]]:
        rows = merge(block)
        merged[block.rows] = rows
        kept = retained_of(block)
        inside = rows.view(-1).index_select(0, kept.places - block.rows.start * block.shape[1])
        return kept, square_sum(rows), kept.damages(inside)

    parts, squares, damages = zip(*inputs.each_block(of), strict=True)
    total = tuple(math.fsum(column) for column in zip(*damages, strict=True))
    return RawTensor(merged, math.sqrt(math.fsum(squares)), total, empty, parts)


def _empty(inputs: TensorInputs, *, forget: bool) -> Iterator[str]:
    """Owners of Fishers of which nothing is kept."""
    for name, clients in (*inputs.groups("retain"), *(inputs.groups("forget") if forget else ())):
        if not inputs.fisher_cut(clients).keeps_any:
            yield name

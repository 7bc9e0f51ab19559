"""Cuts a client's examples into optimiser steps, and steps into forward passes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from fedunlearn.data.encoding import Batch, Example, collate
from fedunlearn.objectives import Counts
from fedunlearn.objectives.likelihood import IGNORED
from fedunlearn.seeding import generator as derived_generator


class Sizes(Protocol):
    """The settings that say how data are cut."""

    @property
    def batch_size(self) -> int:
        """Sequences a forward pass."""

    @property
    def gradient_accumulation(self) -> int:
        """Forward passes an optimiser step."""


@dataclass(frozen=True)
class Pass:
    """One padded batch, and the denominators of the step it is a part of."""

    batch: Batch
    counts: Counts


@dataclass(frozen=True)
class Part:
    """What is seen between two backward passes.

    Attributes:
        main: the client's data.
        preferred: the preferred answers to it, in its order.
        retain: as many records to keep.
    """

    main: Pass
    preferred: Pass | None
    retain: Pass | None


@dataclass(frozen=True)
class Step:
    """One optimiser step: indices into the client's data, and into what it keeps."""

    main: Sequence[int]
    retain: Sequence[int]


@dataclass(frozen=True)
class TrainingData:
    """The examples, and how they are cut.

    Attributes:
        examples: the client's data.
        preferred: the preferred answer to each example; empty where the objective needs none.
        retain: records a forget client keeps; likewise.
        sizes: of batches and steps.
        pad_id: token id that fills short rows.
        device: where batches go.
    """

    examples: Sequence[Example]
    preferred: Sequence[Example]
    retain: Sequence[Example]
    sizes: Sizes
    pad_id: int
    device: torch.device

    @property
    def steps_an_epoch(self) -> int:
        """Optimiser steps, the last partial one included."""
        return math.ceil(len(self.examples) / self._step_size)

    @property
    def _step_size(self) -> int:
        return self.sizes.batch_size * self.sizes.gradient_accumulation

    def epochs(self, generator: torch.Generator) -> Iterator[Iterator[Step]]:
        """Yield epochs without end, each in an order drawn anew when it begins.

        The retained records have an order of their own, derived from the generator's seed, so
        that they do not change the order of the forget data. They go round as often as needed.
        """
        kept = self._kept(derived_generator(generator.initial_seed(), "retain order"))
        while True:
            yield self._epoch(generator, kept)

    def _epoch(self, generator: torch.Generator, kept: Iterator[int]) -> Iterator[Step]:
        order: list[int] = torch.randperm(len(self.examples), generator=generator).tolist()
        for indices in _cut(order, self._step_size):
            yield Step(indices, [next(kept) for _ in indices] if self.retain else [])

    def _kept(self, generator: torch.Generator) -> Iterator[int]:
        while self.retain:
            yield from torch.randperm(len(self.retain), generator=generator).tolist()

    def parts(self, step: Step) -> Iterator[Part]:
        """Yield the forward passes of one step."""
        size = self.sizes.batch_size
        passes = [
            list(_passes(self, of, indices, size))
            for of, indices in (
                (self.examples, step.main),
                (self.preferred, step.main if self.preferred else []),
                (self.retain, step.retain),
            )
        ]
        for place, main in enumerate(passes[0]):
            others = [rest[place] if rest else None for rest in passes[1:]]
            yield Part(main, *others)


def all_batches(data: TrainingData, examples: Sequence[Example]) -> Iterator[Batch]:
    """Yield the examples in their order, in padded batches."""
    for one in _passes(data, examples, range(len(examples)), data.sizes.batch_size):
        yield one.batch


def _passes(
    data: TrainingData, examples: Sequence[Example], indices: Sequence[int], size: int
) -> Iterator[Pass]:
    if not indices:
        return
    counts = _count([examples[i] for i in indices])
    for part in _cut(indices, size):
        batch = collate([examples[i] for i in part], pad_id=data.pad_id, indices=part)
        yield Pass(batch.to(data.device), counts)


def _cut(indices: Sequence[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(indices), size):
        yield list(indices[start : start + size])


def _count(examples: Sequence[Example]) -> Counts:
    return Counts(
        sequences=len(examples),
        targets=sum(label != IGNORED for one in examples for label in one.labels[1:]),
        tokens=sum(len(one.input_ids) for one in examples),
    )

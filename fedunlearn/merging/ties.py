"""TIES merging (Yadav et al., 2023): trim, elect a sign, average those who agree."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedunlearn.merging.interface import (
    MERGE_METHODS,
    MergeMethod,
    Participants,
    TensorInputs,
    settle,
)
from fedunlearn.settings import settings
from fedunlearn.tensors.selection import top_fraction_mask
from fedunlearn.tensors.thresholds import Thresholds

Scope = Literal["tensor", "model"]
ZeroSign = Literal["drop", "positive", "majority"]


def check_density(density: float) -> None:
    """Refuse a fraction of kept entries outside (0, 1].

    Raises:
        ValueError: it is.
    """
    if not 0.0 < density <= 1.0:
        raise ValueError(f"density must be in (0, 1], got {density}")


@MERGE_METHODS.register("ties")
@settings
class Ties(MergeMethod):
    """Trimmed task vectors, averaged where they agree in sign.

    Choices on which public implementations differ:

    * Trimming keeps the ``max(1, floor(density * d))`` largest entries of each client by
      magnitude; entries tied with the last of them are all kept.
    * The elected sign is the sign of the sum of the trimmed entries.
    * The mean is over the clients whose trimmed entry has the elected sign, then not rescaled.

    Attributes:
        density: fraction of each client's entries kept, in (0, 1].
        clients: whose task vectors take part; ``forget`` or ``all``.
        scope: what d counts and whose majority is meant: each ``tensor`` for itself, or the
            ``model``, that is, all adapted weights together.
        zero_sign: where the sum is exactly 0: ``drop`` gives 0; ``positive`` elects plus;
            ``majority`` elects the sign that more coordinates elected, 0 if they are as many.
    """

    density: float = 0.5
    clients: Participants = "forget"
    scope: Scope = "tensor"
    zero_sign: ZeroSign = "drop"

    def __post_init__(self) -> None:
        check_density(self.density)

    @property
    def surveys(self) -> bool:
        """Only the whole model's thresholds have to be known beforehand."""
        return self.scope == "model"

    def survey(self, inputs: TensorInputs) -> Tensor:
        """Count magnitudes, first of all entries and then around the threshold."""
        return self._whole_model().survey(inputs)

    def settled(self, total: Tensor) -> MergeMethod:
        """Go on to the second count."""
        return self._whole_model().settled(total)

    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Zero when no client takes part."""
        if self.surveys:
            return settle(self, lambda: [inputs])(inputs)
        trimmed = [trim(c.task_vector, self.density) for c in inputs.taking(self.clients)]
        if not trimmed:
            return inputs.zeros()
        majority = int(net_sign(trimmed).sum().sign()) if self.zero_sign == "majority" else 0
        return disjoint_mean(trimmed, otherwise=1 if self.zero_sign == "positive" else majority)

    def _whole_model(self) -> "_WholeModelTies":
        return _WholeModelTies(self, Thresholds(self.density))


@dataclass(frozen=True)
class _WholeModelTies(MergeMethod):
    """TIES on its way to knowing each client's threshold, and then the majority's sign."""

    chosen: Ties
    thresholds: Thresholds
    majority: int | None = None

    @property
    def surveys(self) -> bool:
        wants_majority = self.chosen.zero_sign == "majority" and self.majority is None
        return wants_majority or not self.thresholds.known

    def survey(self, inputs: TensorInputs) -> Tensor:
        if self.thresholds.known:
            return net_sign(self._trimmed(inputs) or [inputs.zeros()]).sum(dtype=torch.float64)
        return self.thresholds.survey([c.task_vector for c in inputs.taking(self.chosen.clients)])

    def settled(self, total: Tensor) -> MergeMethod:
        if self.thresholds.known:
            return replace(self, majority=int(total.sign()))
        return replace(self, thresholds=self.thresholds.settled(total))

    def __call__(self, inputs: TensorInputs) -> Tensor:
        trimmed = self._trimmed(inputs)
        otherwise = 1 if self.chosen.zero_sign == "positive" else self.majority or 0
        return disjoint_mean(trimmed, otherwise=otherwise) if trimmed else inputs.zeros()

    def _trimmed(self, inputs: TensorInputs) -> list[Tensor]:
        vectors = [c.task_vector for c in inputs.taking(self.chosen.clients)]
        return trim_below(vectors, self.thresholds)


def trim(task_vector: Tensor, density: float) -> Tensor:
    """Zero all but the ``density`` fraction of largest magnitude, ties kept."""
    return task_vector.masked_fill(~top_fraction_mask(task_vector.abs(), density), 0.0)


def trim_below(task_vectors: Sequence[Tensor], thresholds: Thresholds) -> list[Tensor]:
    """Zero what is smaller in magnitude than its vector's threshold in the whole model."""
    pairs = zip(task_vectors, thresholds.values or (), strict=True)
    return [vector.masked_fill(vector.abs() < least, 0.0) for vector, least in pairs]


def net_sign(trimmed: Sequence[Tensor]) -> Tensor:
    """Return the sign of the sum at each coordinate, int8.

    The sum is taken in float64, so that the sign of a near cancellation is the exact one.
    """
    net = torch.zeros_like(trimmed[0], dtype=torch.float64)
    for tensor in trimmed:
        net += tensor
    return net.sign_().to(torch.int8)


def disjoint_mean(trimmed: Sequence[Tensor], *, otherwise: int = 0) -> Tensor:
    """Average, at each coordinate, the entries that have the sign of their sum.

    Args:
        trimmed: at least one tensor, all of one shape and floating dtype.
        otherwise: the sign elected where the sum is exactly 0; with 0 nobody has it.

    Returns:
        Same shape and dtype, accumulated in float64; 0 where nobody has the elected sign.
    """
    elected = net_sign(trimmed)
    if otherwise:
        elected.masked_fill_(elected == 0, otherwise)
    total = torch.zeros_like(trimmed[0], dtype=torch.float64)
    voters = torch.zeros_like(trimmed[0], dtype=torch.int32)
    for tensor in trimmed:
        agrees = (tensor.sign() == elected) & (elected != 0)
        total += tensor.masked_fill(~agrees, 0.0)
        voters += agrees
    return total.div_(voters.clamp_(min=1)).to(trimmed[0].dtype)

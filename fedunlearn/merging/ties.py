"""TIES merging (Yadav et al., 2023): trim, elect a sign, average those who agree."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import hardshrink

from fedunlearn.merging.contribution import Contribution
from fedunlearn.merging.inputs import Participants, TensorInputs
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod, RowMerge
from fedunlearn.settings import settings
from fedunlearn.tensors.sums import total
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

    def on(self, inputs: TensorInputs) -> RowMerge:
        """Elect the majority's sign, where it is asked for."""
        chosen = inputs.taking(self.clients)
        cuts = [inputs.magnitude_cut(client, self.density) for client in chosen]
        return _Vote(self, cuts, _majority(self, cuts, inputs)).rows

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
            return torch.tensor(_balance(self.chosen, self._cuts, inputs), dtype=torch.float64)
        return survey_magnitudes(self.thresholds, self.chosen.clients, inputs)

    def settled(self, total: Tensor) -> MergeMethod:
        if self.thresholds.known:
            return replace(self, majority=int(total.sign()))
        return replace(self, thresholds=self.thresholds.settled(total))

    def rows(self, block: TensorInputs) -> Tensor:
        return _Vote(self.chosen, self._cuts, self.majority or 0).rows(block)

    @property
    def _cuts(self) -> Sequence[float]:
        return self.thresholds.values or ()


@dataclass(frozen=True)
class _Vote:
    """TIES with everything known: each client's threshold, and the majority's sign."""

    chosen: Ties
    cuts: Sequence[float]
    majority: int

    def rows(self, block: TensorInputs) -> Tensor:
        trimmed = trimmed_updates(block.taking(self.chosen.clients), self.cuts)
        if not trimmed:
            return block.zeros()
        otherwise = 1 if self.chosen.zero_sign == "positive" else self.majority
        return disjoint_mean(trimmed, otherwise=otherwise).to(torch.float32)


def _majority(chosen: Ties, cuts: Sequence[float], inputs: TensorInputs) -> int:
    balance = _balance(chosen, cuts, inputs) if chosen.zero_sign == "majority" else 0.0
    return (balance > 0.0) - (balance < 0.0)


def _balance(chosen: Ties, cuts: Sequence[float], inputs: TensorInputs) -> float:
    """How many more coordinates elect plus than minus."""

    def of_block(block: TensorInputs) -> float:
        trimmed = trimmed_updates(block.taking(chosen.clients), cuts)
        return total(net_sign(trimmed).reshape(-1)).item() if trimmed else 0.0

    return sum(inputs.each_block(of_block))


def survey_magnitudes(
    thresholds: Thresholds, clients: Participants, inputs: TensorInputs
) -> Tensor:
    """One pass over a tensor towards each client's threshold over the whole model."""
    counts = inputs.each_block(
        lambda block: thresholds.survey([c.task_vector for c in block.taking(clients)])
    )
    return torch.stack(list(counts)).sum(0)


def trimmed_updates(clients: Sequence[Contribution], cuts: Sequence[float]) -> list[Tensor]:
    """Zero what is smaller in magnitude than its client's threshold.

    Args:
        clients: n parts in a block of rows.
        cuts: n magnitudes, representable in float32; entries of that magnitude are kept.

    Returns:
        n tensors, float64, of the block's shape, owned by the caller.
    """
    return [
        trim(client.task_vector, least).double()
        for client, least in zip(clients, cuts, strict=True)
    ]


def trim(update: Tensor, least: float) -> Tensor:
    """Zero all entries of magnitude below ``least``; float32, a new tensor unless all stay."""
    if least == 0.0:
        return update
    return hardshrink(update, float(np.nextafter(np.float32(least), np.float32(0.0))))


def net_sign(trimmed: Sequence[Tensor]) -> Tensor:
    """Return the sign of the sum at each coordinate.

    Args:
        trimmed: at least one tensor, float64, so that the sign of a near cancellation of float32
            values is the exact one.

    Returns:
        -1, 0 or 1, same shape and dtype.
    """
    net = trimmed[0].clone()
    for tensor in trimmed[1:]:
        net += tensor
    return net.sign_()


def disjoint_mean(trimmed: Sequence[Tensor], *, otherwise: int = 0) -> Tensor:
    """Average, at each coordinate, the entries that have the sign of their sum.

    Args:
        trimmed: at least one tensor, float64, all of one shape.
        otherwise: the sign elected where the sum is exactly 0; with 0 nobody has it.

    Returns:
        Same shape and dtype; 0 where nobody has the elected sign.
    """
    elected = net_sign(trimmed)
    if otherwise:
        elected.masked_fill_(elected == 0, otherwise)
    mean, voters = torch.zeros_like(elected), torch.zeros_like(elected)
    for tensor in trimmed:
        agreeing = (tensor * elected).relu_()
        mean += agreeing
        voters += agreeing.sign_()
    return mean.div_(voters.clamp_(min=1.0)).mul_(elected)

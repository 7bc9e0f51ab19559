"""TIES merging (Yadav et al., 2023): trim, elect a sign, average those who agree."""

from typing import Literal

import torch
from torch import Tensor

from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod, TensorInputs
from fedunlearn.settings import settings
from fedunlearn.tensors.selection import top_fraction_mask


@MERGE_METHODS.register("ties")
@settings
class Ties(MergeMethod):
    """Trimmed task vectors, averaged among those that agree with the elected sign.

    Choices on which public implementations differ:

    * Trimming keeps the largest entries by magnitude *within each tensor* of each client, ties
      included, and not across a client's whole update.
    * The elected sign is the sign of the sum of the trimmed entries. Where that sum is exactly 0
      neither side wins and the result is 0; it does not fall back on a global majority.
    * The mean is over the clients whose trimmed entry has the elected sign, then not rescaled.

    Attributes:
        density: fraction of each client's entries kept, in (0, 1].
        clients: whose task vectors take part; ``forget`` or ``all``.
    """

    density: float = 0.5
    clients: Literal["forget", "all"] = "forget"

    def __post_init__(self) -> None:
        if not 0.0 < self.density <= 1.0:
            raise ValueError(f"density must be in (0, 1], got {self.density}")

    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Zero when no client takes part."""
        chosen = inputs.contributions if self.clients == "all" else inputs.of("forget")
        trimmed = [trim(client.task_vector, self.density) for client in chosen]
        return disjoint_mean(trimmed) if trimmed else inputs.zeros()


def trim(task_vector: Tensor, density: float) -> Tensor:
    """Zero all but the ``density`` fraction of largest magnitude, ties kept."""
    return task_vector.masked_fill(~top_fraction_mask(task_vector.abs(), density), 0.0)


def disjoint_mean(trimmed: list[Tensor]) -> Tensor:
    """Average, at each coordinate, the entries that have the sign of their sum.

    The sums are taken in float64, so that the sign of a near cancellation is the exact one.

    Args:
        trimmed: at least one float32 tensor, all of one shape.

    Returns:
        Float32, same shape; 0 where the sum is 0.
    """
    net = torch.zeros_like(trimmed[0], dtype=torch.float64)
    for tensor in trimmed:
        net += tensor
    elected = net.sign_().to(torch.int8)
    total = torch.zeros_like(trimmed[0], dtype=torch.float64)
    voters = torch.zeros_like(trimmed[0], dtype=torch.int32)
    for tensor in trimmed:
        agrees = (tensor.sign() == elected) & (elected != 0)
        total += tensor.masked_fill(~agrees, 0.0)
        voters += agrees
    return total.div_(voters.clamp_(min=1)).to(torch.float32)

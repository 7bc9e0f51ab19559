"""Fisher-weighted averaging of whole models (Matena and Raffel, 2022)."""

import math

import torch
from torch import Tensor

from fedunlearn.merging.inputs import TensorInputs
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod
from fedunlearn.settings import settings


@MERGE_METHODS.register("fisher")
@settings
class FisherMerge(MergeMethod):
    """Mean of all clients' task vectors, weighted by raw Fishers.

    ``sum_c F_c D_c / sum_c F_c`` at each coordinate, over forget and retain clients alike:
    nothing is pooled, normalised or sparsified, so a client with larger gradients weighs more.
    All clients share the base weights, and the mean of their models is the base plus this mean
    of task vectors.

    Attributes:
        floor: Fisher entries below it count as it, >= 0. At 0 a coordinate where every Fisher is
            0 stays as it is; with a floor it gets the plain mean. Public code uses 1e-6, which is
            more than most raw entries of a language model.

    Limitations:
        The original takes each Fisher at the client's own fine-tuned weights; here all are taken
        at the base model's.
    """

    needs_fisher = True

    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.floor) and self.floor >= 0.0):
            raise ValueError(f"floor must be a finite number >= 0, got {self.floor}")

    def rows(self, block: TensorInputs) -> Tensor:
        """Accumulated in float64, where products of raw Fishers cannot underflow."""
        weighted = torch.zeros(block.shape, dtype=torch.float64)
        weight = torch.zeros_like(weighted)
        for client in block.contributions:
            fisher = block.raw_fisher(client).double().clamp_(min=self.floor)
            weight += fisher
            weighted += fisher.mul_(client.task_vector)
        merged = weighted.div_(weight).masked_fill_(weight == 0.0, 0.0)
        return merged.to(torch.float32)

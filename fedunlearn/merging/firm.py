"""FIRM's Fisher-weighted base merge (paper section 4.2.2)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod, Source, TensorInputs
from fedunlearn.settings import settings


@MERGE_METHODS.register("firm")
@settings
class Firm(MergeMethod):
    """Fisher-weighted mean over forget domains plus the same over retain clients (eq. 4).

    Each mean is over whoever claims a coordinate, so an update does not grow with the number
    of clients, and a coordinate that nobody's Fisher keeps is exactly 0.
    """

    needs_fisher = True

    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Raw merge of one tensor; a role without clients adds nothing."""
        merged = inputs.zeros()
        for sources in (inputs.forget_domains, inputs.retain_clients):
            if sources:
                merged += fisher_weighted_mean(sources, inputs.eps0)
        return merged


def fisher_weighted_mean(sources: Sequence[Source], eps0: float) -> Tensor:
    """Return ``sum_s F~_s D_s / (sum_s F~_s + eps0)``, one term of eq. 4.

    Args:
        sources: at least one, with processed Fisher diagonals.
        eps0: stabiliser, >= 0.

    Returns:
        Float32, accumulated in float32 in the order of the sources; exactly 0 where every
        weight is 0, also with a stabiliser of 0.
    """
    weighted = torch.zeros_like(sources[0].fisher)
    weight = torch.zeros_like(weighted)
    for source in sources:
        weighted.addcmul_(source.fisher, source.task_vector)
        weight += source.fisher
    return weighted.div_(weight + eps0).masked_fill_(weight == 0.0, 0.0)

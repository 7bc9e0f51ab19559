"""FIRM's Fisher-weighted base merge (paper section 4.2.2) and its ablations (section 5.5)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod, Source, TensorInputs
from fedunlearn.settings import settings
from fedunlearn.tensors.fisher import keep_top_fraction, pool


@MERGE_METHODS.register("firm")
@settings
class Firm(MergeMethod):
    """Fisher-weighted mean of domains plus that of retain clients.

    Eq. 4: forget clients are pooled by domain, retain clients stand alone.

    Each mean is over whoever claims a coordinate, so an update does not grow with the number
    of clients, and a coordinate that nobody's Fisher keeps is exactly 0.

    The paper's ablations: A1 is ``normalize: false``, A2 is ``weights: dense``, A3 is the
    merge's alpha.

    Attributes:
        weights: ``fisher``; ``uniform``: 1 wherever the sparsified Fisher is positive, the same
            mask without its weights; ``dense``: 1 everywhere, so that each role's term is the
            plain mean over its domains or clients.
        normalize: ``false`` drops both normalisations, the division of a Fisher by its largest
            entry and that of the sum by the weights: ``sum_s F_s D_s`` with raw, pooled,
            sparsified Fishers.
    """

    needs_fisher = True

    weights: Literal["fisher", "uniform", "dense"] = "fisher"
    normalize: bool = True

    def __post_init__(self) -> None:
        if not self.normalize and self.weights != "fisher":
            raise ValueError(f"normalize: false goes with weights: fisher, got {self.weights!r}")

    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Raw merge of one tensor; a role without clients adds nothing."""
        if not self.normalize:
            return raw_fisher_sum(inputs)
        merged = inputs.zeros()
        for sources in (inputs.forget_domains, inputs.retain_clients):
            if sources:
                merged += self._term(sources, inputs.eps0)
        return merged

    def _term(self, sources: Sequence[Source], eps0: float) -> Tensor:
        if self.weights == "dense":
            return pool([source.task_vector for source in sources])
        if self.weights == "uniform":
            sources = [uniform_on_mask(source) for source in sources]
        return fisher_weighted_mean(sources, eps0)


def uniform_on_mask(source: Source) -> Source:
    """Replace every positive weight by 1."""
    return replace(source, fisher=(source.fisher > 0.0).to(torch.float32))


def raw_fisher_sum(inputs: TensorInputs) -> Tensor:
    """Return ``sum_s F_s D_s`` over domains and retain clients, F_s raw, pooled, sparsified (A1).

    Float32, accumulated in float32. The mask is that of eq. 3, which a common factor leaves alone.
    """
    merged = inputs.zeros()
    for _, clients in (*inputs.groups("forget"), *inputs.groups("retain")):
        weights = keep_top_fraction(inputs.pooled_fisher(clients), inputs.alpha)
        merged.addcmul_(weights, pool([client.task_vector for client in clients]))
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

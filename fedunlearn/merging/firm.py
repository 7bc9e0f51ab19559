"""FIRM's Fisher-weighted base merge (paper section 4.2.2) and its ablations (section 5.5)."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from fedunlearn.merging.inputs import Source, TensorInputs
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod
from fedunlearn.settings import settings
from fedunlearn.tensors.fisher import pool


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

    def rows(self, block: TensorInputs) -> Tensor:
        """A role without clients adds nothing."""
        if not self.normalize:
            return raw_fisher_sum(block)
        terms = [
            self._term(sources, block.eps0)
            for sources in (block.forget_domains, block.retain_clients)
            if sources
        ]
        merged = terms[0]
        for term in terms[1:]:
            merged += term
        return merged

    def _term(self, sources: Sequence[Source], eps0: float) -> Tensor:
        updates = [source.task_vector for source in sources]
        if self.weights == "dense":
            return pool(updates)
        weights = [source.fisher for source in sources]
        if self.weights == "uniform":
            weights = [mask_of(weight) for weight in weights]
        return weighted_mean(updates, weights, eps0)


def mask_of(weight: Tensor) -> Tensor:
    """Replace every positive weight by 1."""
    return weight.sign()


def raw_fisher_sum(block: TensorInputs) -> Tensor:
    """Return ``sum_s F_s D_s`` over domains and retain clients, F_s raw, pooled, sparsified (A1).

    Float32, accumulated in float32. The mask is that of eq. 3, which a common factor leaves alone.
    """
    merged = block.zeros()
    for _, clients in (*block.groups("forget"), *block.groups("retain")):
        weights = block.fisher_cut(clients).sparsify(block.pooled_fisher(clients))
        merged.addcmul_(weights, block.mean_update(clients))
    return merged


def weighted_mean(updates: Sequence[Tensor], weights: Sequence[Tensor], eps0: float) -> Tensor:
    """Return ``sum_s F~_s D_s / (sum_s F~_s + eps0)``, one term of eq. 4.

    Args:
        updates: D_s, at least one, float32.
        weights: F~_s, one for each, same shape, float32, non-negative.
        eps0: stabiliser, >= 0.

    Returns:
        Float32, accumulated in float32 in the order of the sources; exactly 0 where every
        weight is 0, also with a stabiliser of 0.
    """
    weighted = weights[0] * updates[0]
    total = weights[0].clone()
    for update, weight in zip(updates[1:], weights[1:], strict=True):
        weighted.addcmul_(weight, update)
        total += weight
    if eps0 > 0.0:  # where every weight is 0, so is the numerator
        return weighted.div_(total.add_(eps0))
    return weighted.div_(total).masked_fill_(total == 0.0, 0.0)

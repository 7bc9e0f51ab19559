"""FULM's hierarchical merge (Zhong et al., 2025), as the FIRM paper restates it.

Clients whose whole task vectors point the same way form a cluster, TIES resolves conflicts inside
each cluster, and the clusters' results are added up, or averaged (FIRM, appendix D.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedunlearn.merging.inputs import Participants, TensorInputs
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod, RowMerge
from fedunlearn.merging.ties import (
    Scope,
    check_density,
    disjoint_mean,
    survey_magnitudes,
    trimmed_updates,
)
from fedunlearn.roles import Role
from fedunlearn.settings import settings
from fedunlearn.tensors.clustering import Linkage, cluster, cosine_similarity, gram
from fedunlearn.tensors.thresholds import Thresholds


@MERGE_METHODS.register("fulm")
@settings
class Fulm(MergeMethod):
    """TIES inside clusters of similar clients, summed across them.

    Similarity is the cosine between whole task vectors, all adapted weights together. The paper
    leaves open how pairs become clusters; what is chosen here:

    * Single linkage: clusters are the connected components of the graph that joins clients at
      least ``threshold`` alike. ``linkage`` offers the usual two others.
    * Retain clients are clustered like all others, as in the FIRM paper's reimplementation.
    * TIES as in ``ties``, with a zero net sign giving 0; domains play no part.

    Attributes:
        threshold: cosine similarity from which on clients are joined, in [-1, 1].
        density: fraction of each client's entries kept, in (0, 1].
        linkage: similarity of clusters: ``single``, ``average`` or ``complete``.
        clients: whose task vectors take part; ``forget`` or ``all``.
        scope: trimming within each ``tensor``, or across the ``model``.
    """

    across: ClassVar[Literal["sum", "mean"]] = "sum"

    threshold: float = 0.6
    density: float = 0.3
    linkage: Linkage = "single"
    clients: Participants = "all"
    scope: Scope = "tensor"

    def __post_init__(self) -> None:
        if not -1.0 <= self.threshold <= 1.0:
            raise ValueError(f"threshold must be in [-1, 1], got {self.threshold}")
        check_density(self.density)

    @property
    def surveys(self) -> bool:
        """Clusters are of whole task vectors."""
        return True

    def survey(self, inputs: TensorInputs) -> Tensor:
        """Inner products of the clients' task vectors in one tensor, (n, n)."""
        return gram([client.update for client in inputs.taking(self.clients)])

    def settled(self, total: Tensor) -> MergeMethod:
        """Cluster by the whole task vectors' inner products."""
        similarity = cosine_similarity(total)
        clusters = cluster(similarity, self.threshold, linkage=self.linkage)
        return _ClusteredFulm(self, similarity, clusters, Thresholds(self.density))


@MERGE_METHODS.register("fulm_mean")
@settings
class FulmMean(Fulm):
    """TIES inside clusters of similar clients, averaged across them.

    Options as in ``fulm``, whose update divided by the number of clusters this is.
    """

    across: ClassVar[Literal["sum", "mean"]] = "mean"


@dataclass(frozen=True, eq=False)
class _ClusteredFulm(MergeMethod):
    """FULM that knows its clusters: places among the clients that take part."""

    chosen: Fulm
    similarity: Tensor
    clusters: tuple[tuple[int, ...], ...]
    trimming: Thresholds

    @property
    def surveys(self) -> bool:
        return self.chosen.scope == "model" and not self.trimming.known

    def survey(self, inputs: TensorInputs) -> Tensor:
        return survey_magnitudes(self.trimming, self.chosen.clients, inputs)

    def settled(self, total: Tensor) -> MergeMethod:
        return replace(self, trimming=self.trimming.settled(total))

    def facts(self, roles: Mapping[str, Role], raw_norm: float) -> dict[str, Any]:
        everyone = self.chosen.clients == "all"
        taking = [name for name, role in roles.items() if everyone or role == "forget"]
        return {
            "clusters": [[taking[place] for place in places] for places in self.clusters],
            "similarity": {
                one: dict(zip(taking, row, strict=True))
                for one, row in zip(taking, self.similarity.tolist(), strict=True)
            },
        }

    def on(self, inputs: TensorInputs) -> RowMerge:
        if self.trimming.values is not None:
            cuts: Sequence[float] = self.trimming.values
        else:
            density, clients = self.chosen.density, inputs.taking(self.chosen.clients)
            cuts = [inputs.magnitude_cut(client, density) for client in clients]
        return partial(self._merge, cuts)

    def _merge(self, cuts: Sequence[float], block: TensorInputs) -> Tensor:
        trimmed = trimmed_updates(block.taking(self.chosen.clients), cuts)
        merged = torch.zeros(block.shape, dtype=torch.float64)
        for places in self.clusters:
            merged += disjoint_mean([trimmed[place] for place in places])
        if self.chosen.across == "mean":
            merged /= max(1, len(self.clusters))
        return merged.to(torch.float32)

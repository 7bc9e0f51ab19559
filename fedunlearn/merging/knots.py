"""KnOTS (Stoica et al., ICLR 2025): align low-rank updates by one SVD, then merge with TIES."""

from typing import Literal

import torch
from torch import Tensor

from fedunlearn.merging.contribution import Contribution
from fedunlearn.merging.inputs import Participants, TensorInputs
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod, RowMerge
from fedunlearn.merging.ties import check_density, disjoint_mean
from fedunlearn.settings import settings
from fedunlearn.tensors.joint_svd import JointSvd
from fedunlearn.tensors.low_rank import LowRank
from fedunlearn.tensors.selection import top_fraction_mask


@MERGE_METHODS.register("knots")
@settings
class Knots(MergeMethod):
    """TIES in a basis that the task vectors share, found by one SVD.

    With ``[D_1 .. D_n] = U Sigma [V_1^T .. V_n^T]`` for the task vectors of a tensor side by
    side, TIES merges the clients' right factors, and U Sigma leads back:

    * ``factor: scaled`` (the authors' code) trims and votes on ``Sigma V_c^T``, so that what
      counts is an entry's part in the update; ``plain`` (the paper's formula) on ``V_c^T``.
      Signs and means are the same, only trimming differs: at density 1 both are one method.
    * Trimming is within each tensor of each client, ties kept. A zero net sign gives 0, which
      alone makes the result independent of the sign an SVD happens to give a direction.
    * Directions weaker than 1e-6 of the strongest are dropped as rounding.

    Attributes:
        density: fraction of each client's entries kept, in (0, 1]. The authors keep all of them
            for Llama 3 and a fifth for a vision model.
        clients: whose task vectors take part; ``forget`` or ``all``.
        factor: what is trimmed.

    Limitations:
        Directions of equal strength may rotate into each other: then the result is still one
        and the same for the same inputs, but no more special than others.
    """

    density: float = 1.0
    clients: Participants = "forget"
    factor: Literal["scaled", "plain"] = "scaled"

    def __post_init__(self) -> None:
        check_density(self.density)

    def on(self, inputs: TensorInputs) -> RowMerge:
        """Merge the right factors; float64 within, at low rank if every client's update is."""
        clients = inputs.taking(self.clients)
        aligned = _align(clients) if clients else None
        if aligned is None or not aligned.singular.numel():
            return TensorInputs.zeros
        weights = aligned.singular[:, None] if self.factor == "scaled" else torch.ones(1, 1)
        merged = disjoint_mean([_trim(weights * right, self.density) for right in aligned.rights])
        right = merged / weights
        return lambda block: aligned.product(right, block.rows).to(torch.float32)


def _trim(factor: Tensor, density: float) -> Tensor:
    """Zero all but the largest entries, ties kept; float64."""
    return factor.masked_fill(~top_fraction_mask(factor.abs(), density), 0.0)


def _align(clients: tuple[Contribution, ...]) -> JointSvd:
    products = [client.update for client in clients if isinstance(client.update, LowRank)]
    if len(products) == len(clients):
        return JointSvd.of_products([(one.left, one.right) for one in products])
    return JointSvd.of([client.task_vector for client in clients])

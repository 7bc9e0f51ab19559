"""The retain clients' processed Fishers of one weight, at the coordinates any of them keeps.

Damage and projection act on these coordinates alone: with alpha = 0.1, a tenth of a weight for
every retain client.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedunlearn.merging import TensorInputs
from fedunlearn.tensors.dual import damage


@dataclass(frozen=True, eq=False)
class Retained:
    """F~ of m retain clients on the union of their supports, n coordinates.

    Attributes:
        places: flat indices into the weight, rising, shape (n,), int64.
        fishers: shape (m, n), float32; clients in the order of their ids.
    """

    places: Tensor
    fishers: Tensor

    def of(self, update: Tensor) -> Tensor:
        """Gather an update's entries, shape (n,)."""
        return update.reshape(-1).index_select(0, self.places)

    def put(self, update: Tensor, entries: Tensor) -> None:
        """Write entries back into a contiguous update."""
        update.view(-1).index_copy_(0, self.places, entries)

    def damages(self, entries: Tensor) -> tuple[float, ...]:
        """Return b_k (eq. 6) of an update, given its entries here, for every client."""
        return tuple(damage(entries, fisher) for fisher in self.fishers)

    @classmethod
    def joined(cls, parts: Sequence["Retained"]) -> "Retained":
        """Put together the parts of a weight, at least one, in their order."""
        return cls(
            torch.cat([part.places for part in parts]),
            torch.cat([part.fishers for part in parts], dim=1),
        )


def retained_of(block: TensorInputs) -> Retained:
    """What retain clients keep in a block of rows; places are those of the whole weight."""
    fishers = [client.fisher for client in block.retain_clients]
    if not fishers:
        return Retained(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 0))
    inside = _support(fishers)
    kept = torch.stack([fisher.view(-1).index_select(0, inside) for fisher in fishers])
    return Retained(inside + block.rows.start * block.shape[1], kept)


def _support(fishers: Sequence[Tensor]) -> Tensor:
    together = fishers[0]
    for fisher in fishers[1:]:
        together = together + fisher
    return torch.from_numpy(np.flatnonzero(together.numpy() > 0.0))

"""One client's part in one tensor."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedunlearn.errors import SummaryError
from fedunlearn.roles import Role
from fedunlearn.tensors.low_rank import LowRank
from fedunlearn.tensors.selection import strided


@dataclass(frozen=True, eq=False)
class Contribution:
    """One client's part in one tensor, or in some rows of it.

    Attributes:
        client_id: unique within the round.
        role: ``forget`` or ``retain``.
        domain: the forget domain whose clients are pooled (eq. 2); a label for retain clients.
        update: the task vector ``s * B @ A``, shape (d_out, d_in), float32, dense or as a product.
        fisher: raw empirical Fisher diagonal, same shape, any floating dtype, non-negative;
            ``None`` where no method in use needs it.
    """

    client_id: str
    role: Role
    domain: str
    update: Tensor | LowRank
    fisher: Tensor | None

    @cached_property
    def task_vector(self) -> Tensor:
        """The update, multiplied out, float32; not to be written to."""
        return self.update.dense() if isinstance(self.update, LowRank) else self.update

    def rows(self, chosen: slice) -> "Contribution":
        """Cut out rows."""
        fisher = None if self.fisher is None else self.fisher[chosen]
        return replace(self, update=self.update[chosen], fisher=fisher)

    def magnitude_sample(self) -> Tensor:
        """Magnitudes of some entries of the update, to guess a threshold from."""
        update = self.update
        some = update.sample() if isinstance(update, LowRank) else strided(update.reshape(-1))
        return some.abs()

    def check_shape(self, shape: torch.Size, tensor: str) -> None:
        """Check that update and Fisher have the shape of the other clients'.

        Raises:
            SummaryError: one has not; the text names tensor and client.
        """
        for what, part in {"task vector": self.update, "Fisher": self.fisher}.items():
            if part is not None and part.shape != shape:
                raise SummaryError(
                    f"tensor {tensor!r}: the {what} of client {self.client_id!r} has shape "
                    f"{tuple(part.shape)}, expected {tuple(shape)}"
                )

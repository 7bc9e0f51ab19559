"""Makes the published copies of a round and takes what clients did to them back."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedunlearn.copies.plan import CopyPlan
from fedunlearn.copies.secret import RoundSecret
from fedunlearn.copies.settings import CopySettings

Factors = Mapping[str, tuple[Tensor, Tensor]]
"""Module to LoRA's A, shape (r, d_in), and B, shape (d_out, r)."""


@dataclass(frozen=True)
class NoiseFacts:
    """What the noise of one copy amounts to.

    Attributes:
        copy: its number, from 1.
        alpha: its noise scale.
        sigma: block to the standard deviation of its noise before ``alpha``.
        unchanged: share of the entries to be noised that rounding leaves unchanged; estimated.
        effective_sigma: block to the root mean square of what noise and rounding do; estimated.
        exact: blocks whose task vector is zero, so that they are published without noise.
    """

    copy: int
    alpha: float
    sigma: Mapping[str, float]
    unchanged: float
    effective_sigma: Mapping[str, float]
    exact: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        raise NotImplementedError


class CopyFactory:
    """The copies of one round. Copies are numbered from 1 to m, as in the paper."""

    def __init__(
        self,
        plan: CopyPlan,
        settings: CopySettings,
        weights: Mapping[str, Tensor],
        reference: Mapping[str, Tensor] | None,
        secret: RoundSecret,
        *,
        server_round: int,
    ) -> None:
        """Measure the blocks; nothing is published yet.

        Args:
            plan: of this model.
            settings: of the copies.
            weights: the server's, any floating dtype, on the CPU; read, never changed.
            reference: weights of the public model (eq. 3), read one tensor at a time; ``None``
                where no noise is calibrated by them.
            secret: of the run or of the round.
            server_round: counts from 1; rounds have independent noise and symmetries.

        Raises:
            InputError: weights or reference that do not fit the plan, or a share of unchanged
                entries above the limit.
        """
        raise NotImplementedError

    def facts(self, copy: int) -> NoiseFacts:
        """What the noise of a copy amounts to, for the report."""
        raise NotImplementedError

    def publish(self, copy: int) -> Iterator[tuple[str, Tensor]]:
        """Make ``T(theta + eps)`` one tensor at a time (eq. 1), in the publishing dtype.

        Tied parameters come once. The same call gives the same bits again.
        """
        raise NotImplementedError

    def undo(
        self, copy: int, displacement: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]
    ) -> Iterator[tuple[str, Tensor]]:
        """Map a client's displacement back into the server's coordinates (eq. 9), float32.

        Raises:
            InputError: a name or shape that the plan does not have.
        """
        raise NotImplementedError

    def undo_lora(self, copy: int, factors: Factors) -> dict[str, tuple[Tensor, Tensor]]:
        """Map an adapter back: T^-1 acts on the factors, nothing dense is made.

        Raises:
            InputError: a module that is not of the plan, or factors that do not fit its weight.
        """
        raise NotImplementedError


def digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order given."""
    raise NotImplementedError

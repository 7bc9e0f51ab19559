"""The harmonic average of displacements (eq. 10), accumulated as they come (eq. 14-15)."""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from fedunlearn.copies.factory import Factors
from fedunlearn.copies.plan import CopyPlan
from fedunlearn.tensors.low_rank import LowRank

ALONE: Mapping[str, float] = {"client": 1.0}
"""One client does every copy."""


class HarmonicMean:
    """One float32 accumulator over all parameters; complete once every copy of every client is in.

    ``result = sum_k (1/alpha_k) mean_k / sum_k (1/alpha_k)``, where ``mean_k`` is the clients'
    mean displacement from copy k, weighted by ``clients``.
    """

    def __init__(
        self,
        alphas: Sequence[float],
        shapes: Mapping[str, tuple[int, ...]],
        *,
        clients: Mapping[str, float] = ALONE,
    ) -> None:
        """Start at zero.

        Args:
            alphas: of all copies, at least two.
            shapes: what every displacement must consist of, e.g. ``plan.shapes``.
            clients: name to weight; weights are normalised to a sum of 1.
        """
        raise NotImplementedError

    def add(
        self,
        copy: int,
        displacement: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]],
        *,
        client: str = "client",
    ) -> None:
        """Add one displacement, already in the server's coordinates (:meth:`CopyFactory.undo`).

        Raises:
            RunError: this client's displacement from this copy is in already.
            InputError: tensors that are missing, unknown, of another shape or not finite.
        """
        raise NotImplementedError

    def result(self) -> dict[str, Tensor]:
        """The average, float32.

        Raises:
            RunError: displacements are missing; the text names copies and clients.
        """
        raise NotImplementedError


class HarmonicFactors:
    """The same for LoRA: a product per module, of all ranks side by side."""

    def __init__(
        self, alphas: Sequence[float], plan: CopyPlan, *, clients: Mapping[str, float] = ALONE
    ) -> None:
        """Start empty; arguments as for :class:`HarmonicMean`."""
        raise NotImplementedError

    def add(
        self,
        copy: int,
        factors: Factors,
        *,
        scaling: float | Mapping[str, float],
        client: str = "client",
    ) -> None:
        """Add one adapter in the server's coordinates; ``scaling`` as in ``s * B @ A``."""
        raise NotImplementedError

    def result(self) -> dict[str, LowRank]:
        """Weight's name to the average, in the weight's own orientation (Conv1D: d_in, d_out)."""
        raise NotImplementedError

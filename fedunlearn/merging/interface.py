"""What a merge method sees and returns: one tensor of every client at a time.

A method computes the *raw* merge (gamma = 1, no projection). Scaling by gamma (eq. 5) and the
retention projection (eq. 7) are the same for every method and live outside it, so that a sweep
over gamma and epsilon computes each raw merge once.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from fedunlearn.errors import SummaryError
from fedunlearn.registry import Registry
from fedunlearn.roles import Role
from fedunlearn.tensors.fisher import pool, process_fisher

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Contribution:
    """One client's part in one tensor.

    Attributes:
        client_id: unique within the round.
        role: ``forget`` or ``retain``.
        domain: the forget domain whose clients are pooled (eq. 2); a label for retain clients.
        task_vector: dense ``s * B @ A``, shape (d_out, d_in), float32.
        fisher: raw empirical Fisher diagonal, same shape, float32, non-negative; ``None`` where
            no method in use needs it.
    """

    client_id: str
    role: Role
    domain: str
    task_vector: Tensor
    fisher: Tensor | None


@dataclass(frozen=True, eq=False)
class Source:
    """A pooled forget domain or a single retain client, ready to be weighted.

    Attributes:
        name: the domain, or the retain client's id.
        task_vector: mean task vector, shape (d_out, d_in), float32.
        fisher: processed Fisher (eq. 3), same shape, float32, in [0, 1], zeros where dropped.
    """

    name: str
    task_vector: Tensor
    fisher: Tensor


@dataclass(frozen=True, eq=False)
class TensorInputs:
    """All clients' parts in one tensor, in the order of their ids.

    Attributes:
        name: base parameter name, e.g. ``model.layers.5.mlp.down_proj.weight``.
        contributions: at least one; sorted by ``client_id`` here, so that the order of replies
            cannot matter.
        alpha: fraction of Fisher entries kept (eq. 3), in (0, 1].
        eps0: stabiliser of eq. 3 and eq. 4.
    """

    name: str
    contributions: tuple[Contribution, ...]
    alpha: float = 0.1
    eps0: float = 1e-8

    def __post_init__(self) -> None:
        """Sort the contributions.

        Raises:
            SummaryError: no client, one id twice, or shapes that differ.
        """
        ordered = tuple(sorted(self.contributions, key=lambda c: c.client_id))
        if not ordered:
            raise SummaryError(f"tensor {self.name!r}: no client contributes to it")
        for before, after in pairwise(ordered):
            if before.client_id == after.client_id:
                raise SummaryError(f"tensor {self.name!r}: client {after.client_id!r} comes twice")
        for contribution in ordered:
            _check_shape(contribution, ordered[0].task_vector.shape, self.name)
        object.__setattr__(self, "contributions", ordered)

    def of(self, role: Role) -> tuple[Contribution, ...]:
        """Contributions of one role."""
        return tuple(c for c in self.contributions if c.role == role)

    def zeros(self) -> Tensor:
        """Return the update that changes nothing, shape (d_out, d_in), float32."""
        return torch.zeros_like(self.contributions[0].task_vector, dtype=torch.float32)

    @cached_property
    def forget_domains(self) -> tuple[Source, ...]:
        """Forget clients pooled per domain, then normalised, then sparsified (eq. 2, 3)."""
        forget = self.of("forget")
        domains = sorted({contribution.domain for contribution in forget})
        return tuple(
            self._source(domain, [c for c in forget if c.domain == domain]) for domain in domains
        )

    @cached_property
    def retain_clients(self) -> tuple[Source, ...]:
        """Retain clients, each on its own, normalised, then sparsified (eq. 3)."""
        return tuple(self._source(c.client_id, [c]) for c in self.of("retain"))

    def _source(self, name: str, clients: Sequence[Contribution]) -> Source:
        pooled = pool([self._raw_fisher(client) for client in clients])
        fisher = process_fisher(pooled, alpha=self.alpha, eps0=self.eps0)
        if not fisher.any():
            logger.warning("tensor %s: the Fisher of %s is all zero; no weight", self.name, name)
        return Source(name, pool([client.task_vector for client in clients]), fisher)

    def _raw_fisher(self, client: Contribution) -> Tensor:
        if client.fisher is None:
            raise SummaryError(f"tensor {self.name!r}: client {client.client_id!r} has no Fisher")
        return client.fisher


def _check_shape(contribution: Contribution, shape: torch.Size, tensor: str) -> None:
    parts = {"task vector": contribution.task_vector, "Fisher": contribution.fisher}
    for what, part in parts.items():
        if part is not None and part.shape != shape:
            raise SummaryError(
                f"tensor {tensor!r}: the {what} of client {contribution.client_id!r} has shape "
                f"{tuple(part.shape)}, expected {tuple(shape)}"
            )


class MergeMethod(ABC):
    """One merge method: a frozen ``@settings`` class whose call is the maths.

    The first line of the docstring is what ``fedunlearn list merges`` prints.
    """

    needs_fisher: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Return the raw merge of one tensor, shape (d_out, d_in), float32."""


MERGE_METHODS: Registry[MergeMethod] = Registry("merge method")

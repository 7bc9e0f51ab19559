"""What a merge method sees and returns: one tensor of every client at a time.

A method computes the *raw* merge (gamma = 1, no projection). Scaling by gamma (eq. 5) and the
retention projection (eq. 7) are the same for every method and live outside it, so that a sweep
over gamma and epsilon computes each raw merge once.

Some methods must know the whole model before they can merge its first tensor: which clients are
alike, how long the update is, where a threshold over all entries lies. They *survey*: each tensor
gives a few numbers, which are added up over all tensors, and the sum settles the method.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedunlearn.errors import SummaryError
from fedunlearn.registry import Registry
from fedunlearn.roles import Role
from fedunlearn.tensors.fisher import pool, process_fisher

logger = logging.getLogger(__name__)

Participants = Literal["forget", "all"]
"""Whose task vectors a method takes: those of the forget clients, or those of all clients."""


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
        factors: the same task vector as a product, (d_out, r) and (r, d_in), float32, where the
            caller has it: some methods are fast only at low rank.
    """

    client_id: str
    role: Role
    domain: str
    task_vector: Tensor
    fisher: Tensor | None
    factors: tuple[Tensor, Tensor] | None = None


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

    def taking(self, participants: Participants) -> tuple[Contribution, ...]:
        """Contributions of the forget clients, or of all."""
        return self.contributions if participants == "all" else self.of("forget")

    def zeros(self) -> Tensor:
        """Return the update that changes nothing, shape (d_out, d_in), float32."""
        return torch.zeros_like(self.contributions[0].task_vector, dtype=torch.float32)

    @cached_property
    def forget_domains(self) -> tuple[Source, ...]:
        """Forget clients pooled per domain, then normalised, then sparsified (eq. 2, 3)."""
        return tuple(self._source(name, clients) for name, clients in self.groups("forget"))

    @cached_property
    def retain_clients(self) -> tuple[Source, ...]:
        """Retain clients, each on its own, normalised, then sparsified (eq. 3)."""
        return tuple(self._source(name, clients) for name, clients in self.groups("retain"))

    def groups(self, role: Role) -> tuple[tuple[str, tuple[Contribution, ...]], ...]:
        """Who is pooled with whom, by name: forget clients by domain, retain clients alone."""
        chosen = self.of(role)
        if role == "retain":
            return tuple((client.client_id, (client,)) for client in chosen)
        return tuple(
            (domain, tuple(client for client in chosen if client.domain == domain))
            for domain in sorted({client.domain for client in chosen})
        )

    def pooled_fisher(self, clients: Sequence[Contribution]) -> Tensor:
        """Mean raw Fisher of a group (eq. 2), float32.

        Raises:
            SummaryError: a client's Fisher is not there.
        """
        return pool([self.raw_fisher(client) for client in clients])

    def _source(self, name: str, clients: Sequence[Contribution]) -> Source:
        fisher = process_fisher(self.pooled_fisher(clients), alpha=self.alpha, eps0=self.eps0)
        if not fisher.any():
            logger.warning("tensor %s: the Fisher of %s is all zero; no weight", self.name, name)
        return Source(name, pool([client.task_vector for client in clients]), fisher)

    def raw_fisher(self, client: Contribution) -> Tensor:
        """Raw Fisher diagonal of a client.

        Raises:
            SummaryError: it is not there.
        """
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
    if contribution.factors is not None:
        left, right = contribution.factors
        if (left.shape[0], right.shape[1]) != shape or left.shape[1] != right.shape[0]:
            raise SummaryError(
                f"tensor {tensor!r}: factors {tuple(left.shape)} and {tuple(right.shape)} of "
                f"client {contribution.client_id!r} make no {tuple(shape)}"
            )


class MergeMethod(ABC):
    """One merge method: a frozen ``@settings`` class whose call is the maths.

    The first line of the docstring is what ``fedunlearn list merges`` prints.

    Attributes:
        needs_fisher: the method weighs forget clients by their Fishers.
        needs_learnt: task vectors of forget clients must point towards what is to be forgotten,
            as plain fine-tuning on it makes them, and not away from it.
    """

    needs_fisher: ClassVar[bool] = False
    needs_learnt: ClassVar[bool] = False

    @property
    def surveys(self) -> bool:
        """The method must see all tensors of the model before it merges the first."""
        return False

    def survey(self, inputs: TensorInputs) -> Tensor:
        """Return what one tensor adds to the sum that settles the method; float64, small."""
        raise NotImplementedError(f"{type(self).__name__} needs no survey")

    def settled(self, total: Tensor) -> "MergeMethod":
        """Return the method that knows the sum over all tensors; it may survey once more."""
        raise NotImplementedError(f"{type(self).__name__} needs no survey")

    def facts(self, roles: Mapping[str, Role], raw_norm: float) -> dict[str, Any]:
        """Return what the survey found, for the report.

        Args:
            roles: client's id to its role, in the order of the contributions.
            raw_norm: Euclidean norm of the raw merge over all tensors, as delivered.
        """
        return {}

    @abstractmethod
    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Return the raw merge of one tensor, shape (d_out, d_in), float32.

        A method that surveys and is not settled yet takes the tensor for the whole model.
        """


def settle(method: MergeMethod, every: Callable[[], Iterable[TensorInputs]]) -> MergeMethod:
    """Survey all tensors as often as the method asks.

    Args:
        method: returned as it is if it does not survey.
        every: starts a pass over the tensors of the model, at least one, in a fixed order.

    Returns:
        A method whose call is the raw merge of any of the tensors. Sums are float64.
    """
    while method.surveys:
        parts = (method.survey(inputs).to(torch.float64) for inputs in every())
        total = next(iter(parts)).clone()
        for part in parts:
            total += part
        method = method.settled(total)
    return method


MERGE_METHODS: Registry[MergeMethod] = Registry("merge method")

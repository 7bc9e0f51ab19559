"""What a merge method sees: one tensor of every client, and its rows a block at a time.

A tensor of a large model does not fit the processor's cache, let alone once for every client. So
a :class:`TensorInputs` holds the clients' parts as they came, task vectors as products and Fishers
in bfloat16, and hands out *blocks* of rows, which are multiplied out and widened when read. What
a block must know of the whole tensor, such as a threshold, is found once and remembered.
"""

import logging
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import RLock
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from fedunlearn.errors import SummaryError
from fedunlearn.merging.contribution import Contribution
from fedunlearn.roles import Role
from fedunlearn.tensors.fisher import FisherCut, cut_fisher, pool
from fedunlearn.tensors.low_rank import LowRank
from fedunlearn.tensors.selection import kept_count, select
from fedunlearn.tensors.sums import BLOCK, blocks
from fedunlearn.tensors.threads import in_threads

logger = logging.getLogger(__name__)

T = TypeVar("T")
Participants = Literal["forget", "all"]
"""Whose task vectors a method takes: those of the forget clients, or those of all clients."""


@dataclass(frozen=True, eq=False)
class Source:
    """A pooled forget domain or a single retain client, ready to be weighted.

    Attributes:
        name: the domain, or the retain client's id.
        clients: who is pooled.
        inputs: the rows they are asked for.
    """

    name: str
    clients: tuple[Contribution, ...]
    inputs: "TensorInputs"

    def task_vector(self) -> Tensor:
        """Mean task vector, float32, of the inputs' shape, multiplied out for the caller."""
        return self.inputs.mean_update(self.clients)

    @property
    def fisher(self) -> Tensor:
        """Processed Fisher (eq. 3), float32, in [0, 1], zeros where dropped; not to be changed.

        Raises:
            SummaryError: a client's Fisher is not there.
        """
        return self.inputs.processed_fisher(self.clients)


@dataclass(frozen=True, eq=False)
class TensorInputs:
    """All clients' parts in one tensor, or in a block of its rows, in the order of their ids.

    Attributes:
        name: base parameter name, e.g. ``model.layers.5.mlp.down_proj.weight``.
        contributions: at least one; sorted by ``client_id`` here, so that the order of replies
            cannot matter.
        alpha: fraction of Fisher entries kept (eq. 3), in (0, 1].
        eps0: stabiliser of eq. 3 and eq. 4.
        whole: the tensor of which this is a block of rows; ``None`` for the tensor itself.
        rows: which rows of it.
    """

    name: str
    contributions: tuple[Contribution, ...]
    alpha: float = 0.1
    eps0: float = 1e-8
    whole: "TensorInputs | None" = None
    rows: slice = field(default_factory=lambda: slice(None))
    _known: dict[Hashable, object] = field(default_factory=dict, init=False, repr=False)
    _lock: AbstractContextManager[Any] = field(default_factory=RLock, init=False, repr=False)

    def __post_init__(self) -> None:
        """Sort the contributions.

        Raises:
            SummaryError: no client, one id twice, or shapes that differ.
        """
        if self.whole is not None:
            return
        ordered = tuple(sorted(self.contributions, key=lambda c: c.client_id))
        if not ordered:
            raise SummaryError(f"tensor {self.name!r}: no client contributes to it")
        for before, after in pairwise(ordered):
            if before.client_id == after.client_id:
                raise SummaryError(f"tensor {self.name!r}: client {after.client_id!r} comes twice")
        for contribution in ordered:
            contribution.check_shape(ordered[0].update.shape, self.name)
        object.__setattr__(self, "contributions", ordered)

    @property
    def shape(self) -> torch.Size:
        """Shape of the tensor or block, (rows, d_in)."""
        return self.contributions[0].update.shape

    def row_blocks(self) -> list[slice]:
        """Blocks of rows to work on together; their size depends on the shape alone."""
        height, width = self.shape
        return list(blocks(height, max(1, BLOCK // width)))

    def block(self, rows: slice) -> "TensorInputs":
        """Cut out a block of rows."""
        parts = tuple(client.rows(rows) for client in self.contributions)
        return replace(self, contributions=parts, whole=self, rows=rows)

    def each_block(self, work: Callable[["TensorInputs"], T]) -> Iterator[T]:
        """Apply ``work`` to every block of rows, in several threads; results in their order."""
        return in_threads(lambda rows: work(self.block(rows)), self.row_blocks())

    def of(self, role: Role) -> tuple[Contribution, ...]:
        """Contributions of one role."""
        return tuple(c for c in self.contributions if c.role == role)

    def taking(self, participants: Participants) -> tuple[Contribution, ...]:
        """Contributions of the forget clients, or of all."""
        return self.contributions if participants == "all" else self.of("forget")

    def zeros(self) -> Tensor:
        """Return the update that changes nothing, shape (rows, d_in), float32."""
        return torch.zeros(self.shape)

    @property
    def forget_domains(self) -> tuple[Source, ...]:
        """Forget clients pooled per domain, then normalised, then sparsified (eq. 2, 3)."""
        return tuple(Source(name, clients, self) for name, clients in self.groups("forget"))

    @property
    def retain_clients(self) -> tuple[Source, ...]:
        """Retain clients, each on its own, normalised, then sparsified (eq. 3)."""
        return tuple(Source(name, clients, self) for name, clients in self.groups("retain"))

    def groups(self, role: Role) -> tuple[tuple[str, tuple[Contribution, ...]], ...]:
        """Who is pooled with whom, by name: forget clients by domain, retain clients alone."""
        chosen = self.of(role)
        if role == "retain":
            return tuple((client.client_id, (client,)) for client in chosen)
        return tuple(
            (domain, tuple(client for client in chosen if client.domain == domain))
            for domain in sorted({client.domain for client in chosen})
        )

    def total_update(self, clients: Sequence[Contribution]) -> Tensor:
        """Sum of the clients' task vectors, float32, owned by the caller; zero without clients.

        Products are added up as one product of their ranks together.
        """
        products = [c.update for c in clients if isinstance(c.update, LowRank)]
        if not clients or len(products) < len(clients):
            total = self.zeros()
            for client in clients:
                total += client.task_vector
            return total
        return self._joined(clients)[self.rows].dense()

    def mean_update(self, clients: Sequence[Contribution]) -> Tensor:
        """Mean of the clients' task vectors, float32, owned by the caller; at least one client."""
        total = self.total_update(clients)
        return total.div_(len(clients)) if len(clients) > 1 else total

    def pooled_fisher(self, clients: Sequence[Contribution]) -> Tensor:
        """Mean raw Fisher of a group (eq. 2), float32, owned by the caller.

        Raises:
            SummaryError: a client's Fisher is not there.
        """
        return pool([self._fisher_of(client) for client in clients])

    def processed_fisher(self, clients: Sequence[Contribution]) -> Tensor:
        """Processed Fisher of a group (eq. 3), float32, remembered; not to be changed.

        Raises:
            SummaryError: a client's Fisher is not there.
        """
        key = ("processed", _ids(clients))
        if key not in self._known:
            cut = self.fisher_cut(clients)
            self._known[key] = cut.apply(self.pooled_fisher(clients))
        return cast(Tensor, self._known[key])

    def raw_fisher(self, client: Contribution) -> Tensor:
        """Raw Fisher diagonal of a client, float32.

        Raises:
            SummaryError: it is not there.
        """
        return self._fisher_of(client).float()

    def fisher_cut(self, clients: Sequence[Contribution]) -> FisherCut:
        """How eq. 3 scales and sparsifies the pooled Fisher of a group, over the whole tensor.

        Raises:
            SummaryError: a client's Fisher is not there, or has a NaN or an infinity.
        """
        return self._remembered(("fisher", _ids(clients)), lambda whole, ids: whole._cut(ids))

    def magnitude_cut(self, client: Contribution, density: float) -> float:
        """Magnitude of the ``max(1, floor(density * d))``-th largest entry of the whole update."""
        return self._remembered(
            ("magnitude", _ids([client]), density),
            lambda whole, ids: whole._magnitude(ids[0], density),
        )

    def _remembered(
        self, key: tuple[Hashable, ...], find: Callable[["TensorInputs", Sequence[str]], T]
    ) -> T:
        whole = self.whole or self
        with whole._lock:  # blocks that several threads work on ask for the same
            if key not in whole._known:
                whole._known[key] = find(whole, cast(Sequence[str], key[1]))
            return cast(T, whole._known[key])

    def _named(self, ids: Sequence[str]) -> list[Contribution]:
        return [client for client in self.contributions if client.client_id in ids]

    def _joined(self, clients: Sequence[Contribution]) -> LowRank:
        return self._remembered(
            ("joined", _ids(clients)),
            lambda whole, ids: LowRank.total(
                [cast(LowRank, client.update) for client in whole._named(ids)]
            ),
        )

    def _cut(self, ids: Sequence[str]) -> FisherCut:
        clients = self._named(ids)
        fishers = [self._fisher_of(client) for client in clients]
        try:
            cut = cut_fisher(fishers, alpha=self.alpha, eps0=self.eps0)
        except ValueError as fault:
            raise SummaryError(
                f"tensor {self.name!r}: the Fisher of {', '.join(ids)}: {fault}"
            ) from None
        if not cut.keeps_any:
            who = clients[0].domain if clients[0].role == "forget" else clients[0].client_id
            logger.warning("tensor %s: the Fisher of %s is all zero; no weight", self.name, who)
        return cut

    def _magnitude(self, client_id: str, density: float) -> float:
        (client,) = self._named([client_id])
        size = math.prod(self.shape)
        return select(
            lambda rows: client.rows(rows).task_vector.abs(),
            self.row_blocks(),
            client.magnitude_sample(),
            size,
            kept_count(size, density),
        ).kth

    def _fisher_of(self, client: Contribution) -> Tensor:
        if client.fisher is None:
            raise SummaryError(f"tensor {self.name!r}: client {client.client_id!r} has no Fisher")
        return client.fisher


def _ids(clients: Sequence[Contribution]) -> tuple[str, ...]:
    return tuple(client.client_id for client in clients)

"""Contributions to merge: from literal values, or drawn from a seed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedunlearn.merging import Contribution, MergeMethod, TensorInputs, settle
from fedunlearn.roles import Role
from fedunlearn.tensors.low_rank import LowRank


def client(
    client_id: str,
    task_vector: Sequence[float],
    *,
    role: Role = "forget",
    domain: str = "d",
    fisher: Sequence[float] | None = None,
) -> Contribution:
    """One client of a tensor with a single row; its Fisher is all ones unless given."""
    update = torch.tensor([list(task_vector)])
    raw = torch.ones_like(update) if fisher is None else torch.tensor([list(fisher)])
    return Contribution(client_id, role, domain, update, raw)


def inputs(*contributions: Contribution, alpha: float = 1.0) -> TensorInputs:
    return TensorInputs("w", contributions, alpha=alpha)


def drawn(roles: str, *, shape: tuple[int, int] = (4, 5), seed: int = 0) -> list[Contribution]:
    """A client a letter: ``a`` and ``b`` are forget domains, ``r`` is a retain client."""
    source = torch.Generator().manual_seed(seed)
    return [
        Contribution(
            client_id=f"client-{index}",
            role="retain" if letter == "r" else "forget",
            domain="general" if letter == "r" else letter,
            update=torch.randn(shape, generator=source),
            fisher=torch.rand(shape, generator=source) ** 4 * 1e-5,
        )
        for index, letter in enumerate(roles)
    ]


def low_rank(roles: str, *, shape: tuple[int, int], rank: int, seed: int = 0) -> list[Contribution]:
    """As :func:`drawn`, with task vectors that are products."""
    source = torch.Generator().manual_seed(seed)
    clients = []
    for client in drawn(roles, shape=shape, seed=seed):
        left = torch.randn((shape[0], rank), generator=source)
        right = torch.randn((rank, shape[1]), generator=source)
        clients.append(replace(client, update=LowRank(left, right)))
    return clients


def cut(clients: Sequence[Contribution], columns: Sequence[int]) -> Iterator[TensorInputs]:
    """A model of several weights: the clients' tensors cut into runs of columns."""
    parts = [client.task_vector.split(list(columns), dim=1) for client in clients]
    fishers = [
        [None] * len(columns) if c.fisher is None else c.fisher.split(list(columns), dim=1)
        for c in clients
    ]
    for place in range(len(columns)):
        yield TensorInputs(
            f"w{place}",
            tuple(
                replace(client, update=part[place], fisher=fisher[place])
                for client, part, fisher in zip(clients, parts, fishers, strict=True)
            ),
            alpha=0.3,
        )


def merge_model(method: MergeMethod, model: Sequence[TensorInputs]) -> list[Tensor]:
    """The raw merge of every weight of a model."""
    settled = settle(method, lambda: model)
    return [settled(one) for one in model]


def row(client: Contribution) -> tuple[str, str, list[float], list[float]]:
    """A client as the oracles take it."""
    assert client.fisher is not None
    update, fisher = client.task_vector.flatten().tolist(), client.fisher.flatten().tolist()
    return client.role, client.domain, update, fisher

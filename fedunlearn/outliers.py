"""Finds clients whose numbers are unlike those of the others: a robust test on norms.

A client in bad faith, or with a broken machine, sends a task vector a hundred times too long or a
Fisher a thousand times too large, and every average follows it. Norms are compared in log space, as
ratios, with the median and the median absolute deviation (MAD) of the round: both stay where they
are as long as more than half of the clients are honest. The modified z-score and its usual
threshold of 3.5 are those of Iglewicz and Hoaglin (1993).

Forget and retain clients optimise different things, so a client is compared with those of its own
role where there are three, else with all. A spread smaller than is natural would make every
difference suspicious: it is taken to be at least a factor e^0.5 within a role, e^1 otherwise, so
that at the usual threshold no ratio below 5.8, or 33, is named.

Limitations: of norms only. A poisoned update of the usual length passes, and so does a majority.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import Any

FEWEST = 3
_TO_SIGMA = 1.4826  # of a normal distribution, sigma over MAD
_NATURAL, _NATURAL_MIXED = 0.5, 1.0
_WHOLE = ""
_SMALLEST = 1e-300


@dataclass(frozen=True)
class Norms:
    """What is compared of one client.

    Attributes:
        client_id, role, domain: who it is.
        parts: what it sent, e.g. ``task vector``, to tensor to Euclidean norm.
    """

    client_id: str
    role: str
    domain: str
    parts: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Outlier:
    """A norm that is unlike those of the others.

    Attributes:
        client_id, role, domain: whose.
        part: of what it sent.
        tensor: name; empty: all tensors of the part together.
        norm: the client's.
        median: of those it was compared with, its own included.
        deviation: modified z-score, positive above the median.
        limit: the norm at which the threshold is.
    """

    client_id: str
    role: str
    domain: str
    part: str
    tensor: str
    norm: float
    median: float
    deviation: float
    limit: float

    def __str__(self) -> str:
        of = f" of {self.tensor!r}" if self.tensor else ""
        return (
            f"{self.role} client {self.client_id!r} ({self.domain}): the norm of its {self.part}"
            f"{of} is {self.norm:.3g}, the median is {self.median:.3g} "
            f"(deviation {self.deviation:+.1f})"
        )


def read_outliers(events: Iterable[Mapping[str, Any]]) -> tuple[Outlier, ...]:
    """Read outliers back from a run's log, those of its last attempt."""
    found: list[Outlier] = []
    for event in events:
        if event["event"] == "handshake":
            found = []
        elif event["event"] == "outlier":
            found.append(Outlier(**{field.name: event[field.name] for field in fields(Outlier)}))
    return tuple(found)


def judge(measured: Sequence[Norms], *, threshold: float) -> tuple[Outlier, ...]:
    """Name what is unlike the rest, by client, part and tensor.

    Whole parts are named on both sides, single tensors only where they are too large: an adapter
    may well leave a tensor alone.

    Args:
        measured: of all clients of a round, in any order.
        threshold: of the modified z-score.

    Returns:
        Nothing with fewer than :data:`FEWEST` clients; see :func:`untested`.
    """
    ordered = sorted(measured, key=lambda one: one.client_id)
    return tuple(found for one in ordered for found in _of_client(one, ordered, threshold))


def untested(measured: Sequence[Norms]) -> tuple[str, ...]:
    """Say that there are too few clients for a comparison, if it is so."""
    if len(measured) >= FEWEST:
        return ()
    return (
        f"norms of what clients sent were not compared: {len(measured)} took part, a median "
        f"needs {FEWEST}",
    )


def clipping(outliers: Sequence[Outlier], client_id: str, part: str) -> Mapping[str, float]:
    """Factors below 1 that bring a client's tensors to the limit; the empty name is for all."""
    return {
        one.tensor: one.limit / one.norm
        for one in outliers
        if (one.client_id, one.part) == (client_id, part) and one.norm > one.limit
    }


def _of_client(one: Norms, everyone: Sequence[Norms], threshold: float) -> Iterator[Outlier]:
    alike = [other for other in everyone if other.role == one.role]
    others, natural = (alike, _NATURAL) if len(alike) >= FEWEST else (everyone, _NATURAL_MIXED)
    if len(others) < FEWEST:
        return
    for part, tensors in one.parts.items():
        for tensor in (_WHOLE, *sorted(tensors)):
            values = [_norm(other, part, tensor) for other in others]
            least = natural if tensor == _WHOLE else _NATURAL_MIXED
            middle, deviation, limit = _deviation(
                _norm(one, part, tensor), values, least=least, threshold=threshold
            )
            if deviation > threshold or (tensor == _WHOLE and deviation < -threshold):
                norm = _norm(one, part, tensor)
                yield Outlier(
                    one.client_id,
                    one.role,
                    one.domain,
                    part,
                    tensor,
                    norm,
                    middle,
                    deviation,
                    limit,
                )


def _norm(one: Norms, part: str, tensor: str) -> float:
    tensors = one.parts.get(part, {})
    return math.hypot(*tensors.values()) if tensor == _WHOLE else tensors.get(tensor, 0.0)


def _deviation(
    norm: float, values: Sequence[float], *, least: float, threshold: float
) -> tuple[float, float, float]:
    """Median, modified z-score of the logarithm, and the norm at the threshold."""
    logs = [math.log(max(value, _SMALLEST)) for value in values]
    middle = median(logs)
    sigma = max(_TO_SIGMA * median(abs(one - middle) for one in logs), least)
    away = math.log(max(norm, _SMALLEST)) - middle
    return math.exp(middle), away / sigma, math.exp(min(middle + threshold * sigma, 700.0))

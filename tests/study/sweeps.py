"""Measured sweeps made by hand, so that every number in a test is known."""

from collections.abc import Mapping, Sequence

from fedunlearn.aggregation import Epsilon, MergeSettings
from fedunlearn.evaluation import SetScores
from fedunlearn.exploration import Point, PointRecord, Provenance
from fedunlearn.report import MergeReportRow

PROVENANCE = Provenance(1, "tiny", "ab" * 32, {"bio-0": "cd" * 32})
KINDS = {"bio": "forget", "law": "forget", "geo": "retain", "tool": "utility"}
DOMAINS = ("bio", "law")
N = 40

Shares = tuple[float, float, float, float]
"""Share of right answers on bio, law, geo (retain) and tool (utility)."""

BASE: Shares = (1.0, 1.0, 1.0, 0.9)
SWEEP: dict[str, dict[float, Shares]] = {
    "firm": {0.5: (0.6, 0.55, 0.975, 0.9), 1.0: (0.3, 0.3, 0.9, 0.85), 2.0: (0.1, 0.1, 0.5, 0.8)},
    "sum": {0.5: (0.6, 0.6, 0.7, 0.7), 1.0: (0.3, 0.325, 0.5, 0.6), 2.0: (0.0, 0.0, 0.1, 0.1)},
}


def answers(shares: Shares, *, choices: bool = True) -> dict[str, SetScores]:
    """The first so many questions are right, of forty a set."""
    found = {}
    for (name, kind), share in zip(KINDS.items(), shares, strict=True):
        right = tuple(float(place < round(share * N)) for place in range(N))
        domain = name if kind == "forget" else ""
        found[name] = SetScores(name, kind, domain, right, right, right if choices else ())
    return found


def record(
    method: str,
    gamma: float,
    shares: Shares | None,
    *,
    epsilon: Epsilon = float("inf"),
    domains: Sequence[str] = DOMAINS,
) -> PointRecord:
    """A point whose norm is gamma times the number of domains, for ``sum``, else gamma."""
    norm = gamma * (len(domains) if method == "sum" else 1)
    merged = MergeReportRow(
        method=method,
        gamma=gamma,
        alpha=0.1,
        epsilon=None,
        tensors=3,
        norm=norm,
        raw_norm=norm,
        constrained_tensors=0,
        uncertified_tensors=0,
        largest_damage={},
        warnings=(),
    )
    point = Point(
        merge=MergeSettings(method=method, gamma=gamma, epsilon=epsilon), domains=tuple(domains)
    )
    return PointRecord(point, merged, 0, {}, answers(shares) if shares else None)


def records(sweep: Mapping[str, Mapping[float, Shares | None]] = SWEEP) -> list[PointRecord]:
    """Every point of a sweep, by method, then gamma."""
    return [
        record(method, gamma, shares)
        for method, points in sweep.items()
        for gamma, shares in points.items()
    ]

"""FIRM from summaries to update in float64, entry by entry, one retain client at most binding."""

from collections.abc import Sequence

import numpy as np

from fedunlearn.summary import ClientSummary, adapter_keys


def dense(summary: ClientSummary, name: str, scaling: float) -> np.ndarray:
    a, b = (summary.adapter[key].double().numpy() for key in adapter_keys(name))
    return scaling * np.einsum("or,ri->oi", b, a)


def processed(raw: np.ndarray, alpha: float, eps0: float) -> np.ndarray:
    scaled = raw / (raw.max() + eps0)
    kept = max(1, int(alpha * raw.size))
    threshold = sorted(scaled.ravel(), reverse=True)[kept - 1]
    return np.where(scaled >= threshold, scaled, 0.0)


def weighted(pairs: Sequence[tuple[np.ndarray, np.ndarray]], eps0: float) -> np.ndarray:
    top = sum(fisher * vector for fisher, vector in pairs)
    bottom = sum(fisher for fisher, _ in pairs)
    return np.asarray(top / (bottom + eps0))


def firm_base(
    summaries: Sequence[ClientSummary], name: str, *, scaling: float, alpha: float, eps0: float
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Raw merge of one weight, and the retain clients' processed Fishers."""
    raw = {s.meta.client_id: s.fisher[name].double().numpy() for s in summaries}
    vector = {s.meta.client_id: dense(s, name, scaling) for s in summaries}
    forget: list[tuple[np.ndarray, np.ndarray]] = []
    for domain in sorted({s.meta.domain for s in summaries if s.meta.role == "forget"}):
        ids = [
            s.meta.client_id
            for s in summaries
            if s.meta.role == "forget" and s.meta.domain == domain
        ]
        pooled = np.mean([raw[i] for i in ids], axis=0)
        forget.append((processed(pooled, alpha, eps0), np.mean([vector[i] for i in ids], axis=0)))
    kept = {
        s.meta.client_id: processed(raw[s.meta.client_id], alpha, eps0)
        for s in summaries
        if s.meta.role == "retain"
    }
    retain = [(fisher, vector[i]) for i, fisher in kept.items()]
    total = np.zeros_like(next(iter(raw.values())))
    for pairs in (forget, retain):
        if pairs:
            total = total + weighted(pairs, eps0)
    return total, kept


def nearest_within(base: np.ndarray, fisher: np.ndarray, budget: float) -> np.ndarray:
    """The projection for one retain client, by bisection on its multiplier."""

    def shrunk(multiplier: float) -> np.ndarray:
        return np.asarray(base / (1 + multiplier * fisher))

    def harm(x: np.ndarray) -> float:
        return float(0.5 * (fisher * x * x).sum())

    if harm(base) <= budget:
        return base
    low, high = 0.0, 1.0
    while harm(shrunk(high)) > budget:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if harm(shrunk(middle)) > budget else (low, middle)
    return shrunk(high)

"""Merge methods over whole models, coordinate by coordinate in Python floats.

A vector is a client's update of one weight, flattened; a model is a list of weights.
"""

import math

import numpy as np

from tests.oracles.fisher import mean, process
from tests.oracles.merging import Client


def weighted_mean(weights: list[list[float]], updates: list[list[float]]) -> list[float]:
    merged = []
    for j in range(len(updates[0])):
        total = sum(weight[j] for weight in weights)
        top = sum(weight[j] * update[j] for weight, update in zip(weights, updates, strict=True))
        merged.append(top / total if total else 0.0)
    return merged


def plus(*rows: list[float]) -> list[float]:
    return [sum(column) for column in zip(*rows, strict=True)]


def groups(clients: list[Client]) -> list[list[tuple[list[float], list[float]]]]:
    """Pooled (update, raw Fisher) pairs: those of the forget domains, those of retain clients."""
    forget = [client for client in clients if client[0] == "forget"]
    pooled = []
    for domain in sorted({client[1] for client in forget}):
        members = [client for client in forget if client[1] == domain]
        pooled.append((mean([m[2] for m in members]), mean([m[3] for m in members])))
    return [pooled, [(c[2], c[3]) for c in clients if c[0] == "retain"]]


def uniform(clients: list[Client]) -> list[float]:
    """Eq. 22 at gamma = 1."""
    merged = [0.0] * len(clients[0][2])
    for role in ("forget", "retain"):
        if updates := [client[2] for client in clients if client[0] == role]:
            merged = plus(merged, mean(updates))
    return merged


def firm_uniform(clients: list[Client], alpha: float) -> list[float]:
    """Ablation A2 on the mask: eq. 4 with weights of 1 wherever eq. 3 keeps a positive entry."""
    merged = [0.0] * len(clients[0][2])
    for group in groups(clients):
        if group:
            kept = [[float(f > 0) for f in process(raw, alpha, 1e-8)] for _, raw in group]
            merged = plus(merged, weighted_mean(kept, [update for update, _ in group]))
    return merged


def firm_dense(clients: list[Client]) -> list[float]:
    """Ablation A2 without a mask."""
    merged = [0.0] * len(clients[0][2])
    for group in groups(clients):
        if group:
            merged = plus(merged, mean([update for update, _ in group]))
    return merged


def firm_raw(clients: list[Client], alpha: float) -> list[float]:
    """Ablation A1."""
    merged = [0.0] * len(clients[0][2])
    for update, raw in (pair for group in groups(clients) for pair in group):
        least = sorted(raw, reverse=True)[max(1, math.floor(alpha * len(raw))) - 1]
        part = [f * x if f >= least else 0.0 for f, x in zip(raw, update, strict=True)]
        merged = plus(merged, part)
    return merged


def trim(vectors: list[list[float]], density: float) -> list[list[float]]:
    """Trim one client's vectors across all of them."""
    everything = sorted((abs(x) for vector in vectors for x in vector), reverse=True)
    least = everything[max(1, math.floor(density * len(everything))) - 1]
    return [[x if abs(x) >= least else 0.0 for x in vector] for vector in vectors]


def sign(value: float) -> int:
    return (value > 0) - (value < 0)


def vote(trimmed: list[list[float]], otherwise: int) -> list[float]:
    """Elect and average; ``otherwise`` is the sign where the sum is 0."""
    merged = []
    for column in zip(*trimmed, strict=True):
        elected = sign(math.fsum(column)) or otherwise
        agreeing = [x for x in column if sign(x) == elected and elected]
        merged.append(math.fsum(agreeing) / len(agreeing) if agreeing else 0.0)
    return merged


def ties_model(model: list[list[list[float]]], density: float, zero_sign: str) -> list[list[float]]:
    """TIES over a model: ``model[weight][client]`` is a vector; one threshold, one majority."""
    by_client = [trim(list(vectors), density) for vectors in zip(*model, strict=True)]
    weights = [list(vectors) for vectors in zip(*by_client, strict=True)]
    elected = [sign(math.fsum(column)) for w in weights for column in zip(*w, strict=True)]
    otherwise = {"drop": 0, "positive": 1, "majority": sign(sum(elected))}[zero_sign]
    return [vote(weight, otherwise) for weight in weights]


def connected(vectors: list[list[float]], threshold: float) -> list[list[int]]:
    """Connected components of the graph of sufficient cosine similarity, by flooding."""

    def alike(a: list[float], b: list[float]) -> bool:
        product = math.fsum(x * y for x, y in zip(a, b, strict=True))
        return product >= threshold * math.hypot(*a) * math.hypot(*b)

    left, found = set(range(len(vectors))), []
    while left:
        component, frontier = set(), {min(left)}
        while frontier:
            component |= frontier
            frontier = {
                j for j in left - component if any(alike(vectors[i], vectors[j]) for i in component)
            }
        left -= component
        found.append(sorted(component))
    return found


def fulm(
    model: list[list[list[float]]], *, threshold: float, density: float, averaged: bool
) -> list[list[float]]:
    """FULM over a model, trimming within each weight."""
    whole = [[x for part in parts for x in part] for parts in zip(*model, strict=True)]
    clusters = connected(whole, threshold)
    merged = []
    for weight in model:
        trimmed = [trim([vector], density)[0] for vector in weight]
        centroids = [vote([trimmed[place] for place in places], 0) for places in clusters]
        total = plus(*centroids)
        merged.append([x / len(clusters) for x in total] if averaged else total)
    return merged


def knots(updates: list[np.ndarray], density: float, *, scaled: bool) -> np.ndarray:
    """KnOTS with TIES by a dense SVD, directions without strength left out."""
    basis, strength, right = np.linalg.svd(np.hstack(updates), full_matrices=False)
    rank = int((strength > 1e-6 * strength.max()).sum())
    basis, strength, right = basis[:, :rank], strength[:rank], right[:rank]
    width = updates[0].shape[1]
    parts = [right[:, n * width : (n + 1) * width] for n in range(len(updates))]
    if scaled:
        parts = [strength[:, None] * part for part in parts]
    trimmed = [trim([part.ravel().tolist()], density)[0] for part in parts]
    merged = np.array(vote(trimmed, 0)).reshape(rank, width)
    return np.asarray(basis @ (merged if scaled else strength[:, None] * merged))

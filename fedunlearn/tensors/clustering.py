"""Clusters of vectors that point the same way."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

Linkage = Literal["single", "average", "complete"]
"""Similarity of two clusters: of their most alike members, the mean, or of the least alike."""

BLOCK = 1 << 16
"""Entries of each vector that are widened to float64 together."""


def gram(vectors: Sequence[Tensor]) -> Tensor:
    """Return the inner products of tensors of one shape, (n, n) float64, accumulated in float64."""
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    flat = [vector.reshape(-1) for vector in vectors]
    for start in range(0, flat[0].numel() if flat else 0, BLOCK):
        block = torch.stack([vector[start : start + BLOCK].double() for vector in flat])
        total += block @ block.T
    return total


def cosine_similarity(products: Tensor) -> Tensor:
    """Return ``<u, v> / (|u| |v|)`` from inner products, (n, n); 0 where a vector is zero."""
    squares = products.diagonal()
    return (products / (squares[:, None] * squares).sqrt()).nan_to_num(
        nan=0.0, posinf=0.0, neginf=0.0
    )


def cluster(
    similarity: Tensor, threshold: float, *, linkage: Linkage = "single"
) -> tuple[tuple[int, ...], ...]:
    """Join the two clusters that are most alike until none reach the threshold.

    With single linkage these are the connected components of the graph that joins whoever is at
    least as alike as the threshold. Of equally similar pairs the one with the lowest places is
    joined first.

    Args:
        similarity: symmetric, shape (n, n).
        threshold: similarity from which on clusters are joined.
        linkage: how alike two clusters are.

    Returns:
        Places in rising order, in clusters ordered by their first.
    """
    clusters: list[tuple[int, ...]] = [(place,) for place in range(len(similarity))]
    while len(clusters) > 1:
        pairs = list(combinations(clusters, 2))
        scores = [_likeness(similarity, one, other, linkage) for one, other in pairs]
        best = max(scores)
        if not best >= threshold:
            break
        one, other = pairs[scores.index(best)]
        clusters = sorted(
            [c for c in clusters if c not in (one, other)] + [tuple(sorted(one + other))]
        )
    return tuple(clusters)


def _likeness(
    similarity: Tensor, one: Sequence[int], other: Sequence[int], linkage: Linkage
) -> float:
    between = similarity[list(one)][:, list(other)]
    if linkage == "average":
        return between.mean().item()
    return (between.max() if linkage == "single" else between.min()).item()

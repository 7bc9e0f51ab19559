"""Clusters of vectors that point the same way."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from fedunlearn.tensors.low_rank import LowRank
from fedunlearn.tensors.sums import inner_product

Linkage = Literal["single", "average", "complete"]
"""Similarity of two clusters: of their most alike members, the mean, or of the least alike."""


def gram(vectors: Sequence[Tensor | LowRank]) -> Tensor:
    """Return the inner products of matrices of one shape, (n, n), taken in float64.

    Where all are products, ``<L_i R_i, L_j R_j> = sum((L_i^T L_j) * (R_i R_j^T))`` is found
    without multiplying them out.
    """
    products = [vector for vector in vectors if isinstance(vector, LowRank)]
    if products and len(products) == len(vectors):
        return _gram_of_products(products)
    dense = [v.dense() if isinstance(v, LowRank) else v for v in vectors]
    flat = [vector.reshape(-1) for vector in dense]
    found = torch.zeros(len(flat), len(flat), dtype=torch.float64)
    for i, one in enumerate(flat):
        for j, other in enumerate(flat[: i + 1]):
            found[i, j] = found[j, i] = inner_product(one, other)
    return found


def _gram_of_products(products: Sequence[LowRank]) -> Tensor:
    ranks = [one.left.shape[1] for one in products]
    left = torch.cat([one.left.double() for one in products], dim=1)
    right = torch.cat([one.right.double() for one in products])
    both = (left.T @ left).mul_(right @ right.T)
    rows = [part.sum(0) for part in torch.split(both, ranks)]
    return torch.stack(
        [torch.stack([part.sum() for part in torch.split(row, ranks)]) for row in rows]
    )


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

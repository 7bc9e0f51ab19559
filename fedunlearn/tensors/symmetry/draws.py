"""Draws the symmetries of attention from keys, in float64 until the end.

Symbols: H query heads, K key-value heads, g = H / K query heads a group, d the head dimension,
of which the first r are rotary.
"""

import torch
from torch import Tensor

from fedunlearn.tensors.keyed_draws import keyed_normal_64, keyed_order, keyed_uniform


def head_order(key: bytes, kv_heads: int, per_group: int) -> tuple[Tensor, Tensor]:
    """Permute key-value heads with their groups, and query heads inside each group.

    Returns:
        The order of the K key-value heads and that of the H query heads, int64: place c takes
        head ``order[c]``.
    """
    groups = keyed_order(key, (kv_heads,))
    inside = keyed_order(key, (kv_heads, per_group), stream=1)
    return groups, (groups[:, None] * per_group + inside).reshape(-1)


def random_orthogonal(key: bytes, count: int, size: int, *, stream: int = 0) -> Tensor:
    """Draw orthogonal matrices from the uniform (Haar) distribution; (count, size, size), float64.

    Q of a normal matrix, with the signs that make R's diagonal positive: without them the
    distribution is not uniform.
    """
    q, r = torch.linalg.qr(keyed_normal_64(key, (count, size, size), stream=stream))
    haar: Tensor = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    return haar


def half_split_planes(rotary: int) -> Tensor:
    """Pairs of places that transformers' rotary embedding turns together: (i, i + r/2); (r/2, 2).

    The original RoPE pairs neighbours, (2i, 2i + 1). Rotations in those planes do not commute with
    this layout, and change every attention score.
    """
    first = torch.arange(rotary // 2)
    return torch.stack([first, first + rotary // 2], 1)


def commuting_with_rotary(key: bytes, count: int, size: int, planes: Tensor) -> Tensor:
    """Draw orthogonal matrices that commute with the rotary embedding (MPU, eq. 60).

    A rotation by a random angle in every plane, and any orthogonal matrix on the places that the
    embedding leaves alone (partial rotary; all places where there is none).

    Args:
        key: 32 bytes.
        count: number of matrices.
        size: head dimension d.
        planes: pairs of places, shape (r/2, 2).

    Returns:
        Shape (count, d, d), float64.
    """
    made = torch.zeros(count, size, size, dtype=torch.float64)
    angles = 2 * torch.pi * keyed_uniform(key, (count, len(planes)))
    one, other = planes[:, 0], planes[:, 1]
    made[:, one, one] = angles.cos()
    made[:, other, other] = angles.cos()
    made[:, other, one] = angles.sin()
    made[:, one, other] = -angles.sin()
    free = torch.ones(size, dtype=torch.bool).index_fill_(0, planes.reshape(-1), False)
    places = free.nonzero().squeeze(1)
    if len(places):
        made[:, places[:, None], places] = random_orthogonal(key, count, len(places), stream=1)
    return made

"""Linear maps of a weight's axis that leave what a transformer computes as it is.

``spans`` says where on an axis the heads or channels lie, ``grid_map`` moves and turns them,
``assembling`` does so for a whole matrix while it is read, ``draws`` makes permutations, rotations
in rotary planes and orthogonal matrices from a key.
"""

from fedunlearn.tensors.symmetry.assembling import assemble
from fedunlearn.tensors.symmetry.draws import (
    commuting_with_rotary,
    half_split_planes,
    head_order,
    random_orthogonal,
)
from fedunlearn.tensors.symmetry.grid_map import GridMap
from fedunlearn.tensors.symmetry.spans import Span

__all__ = [
    "GridMap",
    "Span",
    "assemble",
    "commuting_with_rotary",
    "half_split_planes",
    "head_order",
    "random_orthogonal",
]

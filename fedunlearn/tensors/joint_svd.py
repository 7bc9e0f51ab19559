"""One singular value decomposition for several matrices, as KnOTS (Stoica et al., 2025) aligns.

==============  ===================================================================
symbol          here
==============  ===================================================================
D_i             matrix i, shape (d_out, d_in)
[D_1 .. D_n]    side by side, ``= U Sigma [V_1^T .. V_n^T]``
U               ``basis``, shared, orthonormal columns
Sigma           ``singular``
V_i^T           ``rights[i]``, what matrix i is made of in that basis
==============  ===================================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NEGLIGIBLE = 1e-6
"""Directions weaker than this, relative to the strongest, are what rounding to float32 makes."""


@dataclass(frozen=True, eq=False)
class JointSvd:
    """``D_i = basis @ diag(singular) @ rights[i]``, all float64.

    Attributes:
        basis: shape (d_out, k), orthonormal columns.
        singular: shape (k,), positive, falling.
        rights: one matrix of shape (k, d_in) each; side by side their rows are orthonormal.

    Limitations:
        A direction is free in sign, and directions of equal singular value are free to rotate
        into each other; what is built on them is unique only where it does not depend on that.
    """

    basis: Tensor
    singular: Tensor
    rights: tuple[Tensor, ...]

    @classmethod
    def of(cls, matrices: Sequence[Tensor]) -> "JointSvd":
        """Decompose dense matrices of one shape, at least one.

        The cost grows with the cube of the smaller side: for small matrices.
        """
        wide = torch.cat([matrix.double() for matrix in matrices], dim=1)
        basis, singular, right = torch.linalg.svd(wide, full_matrices=False)
        kept = _significant(singular)
        rights = right[kept].split(matrices[0].shape[1], dim=1)
        return cls(basis[:, kept], singular[kept], tuple(rights))

    @classmethod
    def of_products(cls, factors: Sequence[tuple[Tensor, Tensor]]) -> "JointSvd":
        """Decompose matrices given as products, never forming them.

        With ``left_i = Q R_i`` (one QR for all left factors) and ``right_i = L_i P_i`` (one for
        each right factor) the matrices side by side are ``Q [R_i L_i] blockdiag(P_i)``, and the
        decomposition of the small matrix in the middle gives theirs.

        Args:
            factors: at least one pair (d_out, r_i), (r_i, d_in); ranks may differ.
        """
        lefts = torch.cat([left.double() for left, _ in factors], dim=1)
        ranks = [left.shape[1] for left, _ in factors]
        Q, R = torch.linalg.qr(lefts)
        pairs = [torch.linalg.qr(right.double().T) for _, right in factors]
        cores = [part @ L.T for part, (_, L) in zip(R.split(ranks, dim=1), pairs, strict=True)]
        inner, singular, right = torch.linalg.svd(torch.cat(cores, dim=1), full_matrices=False)
        kept = _significant(singular)
        parts = right[kept].split([core.shape[1] for core in cores], dim=1)
        rights = tuple(part @ P.T for part, (P, _) in zip(parts, pairs, strict=True))
        return cls(Q @ inner[:, kept], singular[kept], rights)

    def product(self, right: Tensor, rows: slice = slice(None)) -> Tensor:
        """Return rows of ``basis @ diag(singular) @ right``, shape (rows, d_in), float64."""
        return (self.basis[rows] * self.singular) @ right


def _significant(singular: Tensor) -> Tensor:
    return (singular > NEGLIGIBLE * singular.max()) & (singular > 0.0)

"""Zero-sum noise of m copies (MPU, eq. 4), any copy's part drawn without the others.

Symbols: ``m`` copies, ``k = 1..m``; ``z_k`` independent with variance sigma**2;
``eps0_k = sqrt(m / (m - 1)) (z_k - mean z)``, which sums to zero over k.

The same distribution is drawn with fewer numbers: ``eps0_k = sigma sum_j C[k, j] g_j`` with
``m - 1`` independent standard normal ``g_j`` and a matrix C whose columns span the vectors that
sum to zero. Normal vectors of one covariance are the same in distribution, and that covariance is
``sigma**2 C C^T = sigma**2 m / (m - 1) (I - 1 1^T / m)`` (eq. 25-26). For m = 2 it is one draw,
``eps0 = (g, -g)``, whose sum is zero exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedunlearn.tensors.keyed_draws import keyed_normal


def zero_sum_matrix(m: int) -> Tensor:
    """Return C with ``C C^T = m / (m - 1) (I - 1 1^T / m)``; shape (m, m - 1), float64.

    Column j is Helmert's contrast of the first j copies with copy j + 1, so that copy k needs
    the draws from k - 1 on.

    Raises:
        ValueError: m is below 2: a single copy's noise cannot sum to zero.
    """
    if m < 2:
        raise ValueError(f"zero-sum noise needs m >= 2 copies, got {m}")
    matrix = torch.zeros(m, m - 1, dtype=torch.float64)
    for j in range(1, m):
        matrix[:j, j - 1] = 1.0
        matrix[j, j - 1] = -float(j)
        matrix[:, j - 1] *= (m / (m - 1) / (j * (j + 1))) ** 0.5
    return matrix


@dataclass(frozen=True)
class Noise:
    """Noise of one tensor, any part of which is drawn alone.

    Attributes:
        key: of the tensor; 32 bytes.
        factors: standard deviation of each of the key's sequences that are added up.
    """

    key: bytes
    factors: Mapping[int, float]

    def add_(self, part: Tensor, start: int) -> Tensor:
        """Add to entries of the tensor in place.

        Args:
            part: contiguous, float32; consecutive entries of the flattened tensor.
            start: place of the first of them.
        """
        flat = part.view(-1)
        for stream, factor in self.factors.items():
            drawn = keyed_normal(self.key, start, flat.numel(), stream=stream)
            flat.add_(drawn, alpha=factor)
        return part


def zero_sum_noise(key: bytes, copy: int, m: int, sigma: float) -> Noise:
    """Noise ``sigma * sum_j C[copy, j] g_j`` of one copy.

    Args:
        key: of this tensor in this round, the same for all copies.
        copy: from 1 to m.
        m: number of copies.
        sigma: standard deviation, the copy's alpha included.
    """
    row = (sigma * zero_sum_matrix(m)[copy - 1]).tolist()
    return Noise(key, {j: factor for j, factor in enumerate(row) if factor})


def independent_noise(key: bytes, sigma: float) -> Noise:
    """Noise of a single copy, which nothing cancels."""
    return Noise(key, {0: sigma} if sigma else {})


def rounded_away(weights: Tensor, noise: Noise, dtype: torch.dtype) -> tuple[int, float]:
    """Say what is left of noise once the noised weights are rounded.

    Args:
        weights: shape (n,), any floating dtype.
        noise: of standard deviation and distribution asked about; its first n numbers are taken.
        dtype: that the noised weights are rounded to.

    Returns:
        How many entries come out as they would without noise, and the sum of the squared
        differences between the rounded weights with and without noise.
    """
    plain = weights.to(torch.float32)
    noised = noise.add_(plain.clone(), 0)
    change = noised.to(dtype).double() - plain.to(dtype).double()
    return int((change == 0).sum()), float(change.square().sum())

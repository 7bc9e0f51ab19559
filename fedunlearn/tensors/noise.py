"""Zero-sum noise of m copies (MPU, eq. 4), any copy's part drawn without the others.

Symbols: ``m`` copies, ``k = 1..m``; ``z_k`` independent with variance sigma**2;
``eps0_k = sqrt(m / (m - 1)) (z_k - mean z)``, which sums to zero over k.

The same distribution is drawn with fewer numbers: ``eps0_k = sigma sum_j C[k, j] g_j`` with
``m - 1`` independent standard normal ``g_j`` and a matrix C whose columns span the vectors that
sum to zero. Normal vectors of one covariance are the same in distribution, and that covariance is
``sigma**2 C C^T = sigma**2 m / (m - 1) (I - 1 1^T / m)`` (eq. 25-26). For m = 2 it is one draw,
``eps0 = (g, -g)``, whose sum is zero exactly.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedunlearn.tensors.keyed_draws import CHUNK, keyed_normal
from fedunlearn.tensors.sums import blocks
from fedunlearn.tensors.threads import in_threads


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


def add_zero_sum(weights: Tensor, key: bytes, copy: int, m: int, sigma: float) -> Tensor:
    """Return ``weights + sigma * sum_j C[copy, j] g_j``, the sum taken in float32.

    Args:
        weights: any shape and floating dtype, contiguous; not changed.
        key: of this tensor in this round, the same for all copies; 32 bytes.
        copy: from 1 to m.
        m: number of copies.
        sigma: standard deviation, the copy's alpha included.

    Returns:
        Float32, same shape, a new tensor.
    """
    row = (sigma * zero_sum_matrix(m)[copy - 1]).tolist()
    return _add(weights, [(key, j, factor) for j, factor in enumerate(row) if factor])


def add_independent(weights: Tensor, key: bytes, sigma: float) -> Tensor:
    """Return ``weights + sigma * g``, float32: noise of a single copy that nothing cancels."""
    return _add(weights, [(key, 0, sigma)])


def _add(weights: Tensor, draws: list[tuple[bytes, int, float]]) -> Tensor:
    flat = weights.reshape(-1)
    noised = torch.empty(flat.shape, dtype=torch.float32)

    def fill(part: slice) -> None:
        here = noised[part].copy_(flat[part])
        for key, stream, factor in draws:
            drawn = keyed_normal(key, stream, part.start // CHUNK, here.numel())
            here.add_(drawn, alpha=factor)

    for _ in in_threads(fill, list(blocks(flat.numel(), CHUNK))):
        pass
    return noised.view(weights.shape)


def rounded_away(
    weights: Tensor, noise: Callable[[int], Tensor], dtype: torch.dtype
) -> tuple[int, float]:
    """Say what is left of noise once the noised weights are rounded.

    Args:
        weights: shape (n,), any floating dtype.
        noise: given n, that many draws of the noise, float32.
        dtype: that the noised weights are rounded to.

    Returns:
        How many entries come out as they would without noise, and the sum of the squared
        differences between the rounded weights with and without noise.
    """
    plain = weights.to(torch.float32)
    change = (plain + noise(plain.numel())).to(dtype).double() - plain.to(dtype).double()
    return int((change == 0).sum()), float(change.square().sum())

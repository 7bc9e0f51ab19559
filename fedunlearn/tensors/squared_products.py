"""Squares of per-sequence products, added up without keeping the products."""

from collections.abc import Sequence

import torch
from torch import Tensor

_BLOCK = {"cpu": 2**20, "cuda": 2**24}
_HALF = (torch.bfloat16, torch.float16)
_MM_WIDENS = hasattr(torch.ops.aten.mm, "dtype")  # torch >= 2.8


def add_squared_products(total: Tensor, uses: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Add ``sum_b (sum_u L_u[b]^T R_u[b]) ** 2``, entry by entry, to ``total`` in place.

    With L the gradients at a linear layer's output and R its inputs, ``L[b]^T R[b]`` is the
    gradient of sequence b with respect to the layer's weight; a weight that is used several
    times (u) has the sum of its uses' gradients, taken before squaring.

    Each product is made a block of rows at a time, squared and dropped, so that beside
    ``total`` there is never more than one block (4 MiB; 64 MiB on CUDA) and one sequence's
    operands in float32. Products of half-precision operands are exact, summed over tokens in
    float32 and not rounded in between.

    Args:
        total: (p, q) float32.
        uses: pairs L (B, T_u, p) and R (B, T_u, q) of any floating dtype; one B for all.

    Example:
        >>> total = torch.zeros(1, 1)
        >>> add_squared_products(total, [(torch.tensor([[[2.0]], [[-2.0]]]), torch.ones(2, 1, 1))])
        >>> total.item()
        8.0
    """
    rows, columns = total.shape
    step = max(1, _BLOCK.get(total.device.type, _BLOCK["cpu"]) // columns)
    for sequence in range(uses[0][0].shape[0]):
        left = _operand([pair[0][sequence] for pair in uses])
        right = _operand([pair[1][sequence] for pair in uses])
        for start in range(0, rows, step):
            product = _product(left[:, start : start + step], right)
            total[start : start + step].addcmul_(product, product)


def _operand(parts: list[Tensor]) -> Tensor:
    """Tokens of all uses after one another, in the dtype in which they are multiplied."""
    tokens = parts[0] if len(parts) == 1 else torch.cat(parts)
    return tokens if _widens(tokens) else tokens.float()


def _product(left: Tensor, right: Tensor) -> Tensor:
    if _widens(left):
        return torch.mm(left.mT, right, out_dtype=torch.float32)
    return left.mT @ right


def _widens(operand: Tensor) -> bool:
    """Whether PyTorch multiplies these half-precision operands into a float32 product."""
    return operand.is_cuda and operand.dtype in _HALF and _MM_WIDENS

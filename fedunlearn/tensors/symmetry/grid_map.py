"""Moves the heads or channels of an axis and turns each of them."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class GridMap:
    """``y[c] = M[c] x[order[c]]`` over the cells c of an axis; orthogonal, so inverse = transpose.

    Attributes:
        order: a permutation of the cells, shape (count,), int64; ``None``: none moves.
        turns: orthogonal matrices, shape (groups, width, width), float32; cell c is turned by
            that of group ``c // (count / groups)``. ``None``: none is turned.
    """

    order: Tensor | None = None
    turns: Tensor | None = None

    def apply(self, cells: Tensor, axis: int) -> Tensor:
        """Return the mapped cells.

        Args:
            cells: shape (..., count, width, ...), float32; ``axis`` counts the cells, the next
                one their places (:meth:`Span.view`). Not changed.
            axis: of the cells.

        Returns:
            Same shape; the input itself where nothing moves or turns.
        """
        moved = cells if self.order is None else cells.index_select(axis, self.order)
        return moved if self.turns is None else _turned(self.turns, moved, axis)

    def undo(self, cells: Tensor, axis: int) -> Tensor:
        """Return what :meth:`apply` maps to ``cells``; same arguments."""
        back = cells if self.turns is None else _turned(self.turns.mT, cells, axis)
        return back if self.order is None else back.index_select(axis, self.order.argsort())


def _turned(turns: Tensor, cells: Tensor, axis: int) -> Tensor:
    """Multiply the places of every cell by its group's matrix."""
    count, width = cells.shape[axis], cells.shape[axis + 1]
    each = turns.repeat_interleave(count // len(turns), 0)
    if axis == 0:
        return torch.bmm(each, cells.reshape(count, width, -1)).reshape(cells.shape)
    if cells.dim() != 3:
        raise ValueError(f"cells must lie along the first or the last axis, not {axis} of it")
    turned = torch.empty(cells.shape, dtype=cells.dtype)
    for cell, turn in enumerate(each):  # one by one: a batched product would copy them twice
        torch.mm(cells[:, cell], turn.T, out=turned[:, cell])
    return turned

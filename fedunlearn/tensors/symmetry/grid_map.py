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
            cells: three dimensions, float32; ``axis`` counts the cells, the next one their places
                (:meth:`Span.view`). Not changed.
            axis: 0 or 1.

        Returns:
            Same shape; the input itself where nothing moves or turns.
        """
        moved = cells if self.order is None else cells.index_select(axis, self.order)
        return moved if self.turns is None else _turned(self._each(cells.shape[axis]), moved, axis)

    def undo(self, cells: Tensor, axis: int) -> Tensor:
        """Return what :meth:`apply` maps to ``cells``; same arguments."""
        turns = None if self.turns is None else self._each(cells.shape[axis]).mT
        back = cells if turns is None else _turned(turns, cells, axis)
        return back if self.order is None else back.index_select(axis, self.order.argsort())

    def moving(self, count: int, *, undo: bool) -> tuple[Tensor, Tensor | None]:
        """Say, for every cell of the input, where it goes and what it is multiplied by there.

        Args:
            count: number of cells.
            undo: of the inverse map.

        Returns:
            Places, shape (count,), int64, and matrices, shape (count, width, width), or ``None``.
        """
        order = torch.arange(count) if self.order is None else self.order
        turns = None if self.turns is None else self._each(count)
        if undo:
            return order, None if turns is None else turns.mT
        places = order.argsort()
        return places, None if turns is None else turns[places]

    def _each(self, count: int) -> Tensor:
        """A matrix for every cell."""
        assert self.turns is not None
        return self.turns.repeat_interleave(count // len(self.turns), 0)


def _turned(each: Tensor, cells: Tensor, axis: int) -> Tensor:
    """Multiply the places of every cell by its matrix."""
    if axis == 0:
        return each @ cells
    return (cells.transpose(0, 1) @ each.mT).transpose(0, 1)

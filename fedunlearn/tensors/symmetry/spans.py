"""Where on an axis heads or channels lie, fused and interleaved layouts included."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Span:
    """``count`` cells of ``width`` places each on one axis, the first of them at ``offset``.

    Heads of a query projection lie one after another; in a fused projection they start at an
    offset; GPT-NeoX stores query, key and value of a head together, so that the next query is
    three widths away. Channels are cells of width 1.

    Attributes:
        offset: place of the first cell.
        count: number of cells.
        width: places in a cell.
        stride: places from the start of a cell to the start of the next.
    """

    offset: int
    count: int
    width: int
    stride: int

    @property
    def end(self) -> int:
        """First place after the last cell."""
        return self.offset + (self.count - 1) * self.stride + self.width

    def view(self, tensor: Tensor, axis: int) -> Tensor:
        """Show the cells: shape (..., count, width, ...) in place of the axis, shared memory.

        Raises:
            ValueError: the axis is too short.
        """
        if self.end > tensor.shape[axis]:
            raise ValueError(f"{self} does not fit axis {axis} of {tuple(tensor.shape)}")
        shape, strides = list(tensor.shape), list(tensor.stride())
        step = strides[axis]
        shape[axis : axis + 1] = [self.count, self.width]
        strides[axis : axis + 1] = [self.stride * step, step]
        return tensor.as_strided(shape, strides, tensor.storage_offset() + self.offset * step)

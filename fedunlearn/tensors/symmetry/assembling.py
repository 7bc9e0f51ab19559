"""Maps a whole matrix in one pass: each block is read, mapped and written while it is in cache.

Blocks are worked on by several threads, each alone. They are cut by the matrix's shape and by
the cells only, so that the result does not depend on the number of threads.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from fedunlearn.tensors.sums import blocks
from fedunlearn.tensors.symmetry.grid_map import GridMap
from fedunlearn.tensors.symmetry.spans import Span
from fedunlearn.tensors.threads import alone, in_threads

ENTRIES = 1 << 18
"""Entries worked on together: few enough to stay near the processor, enough to outweigh Python."""
Read = Callable[[slice], Tensor]
"""Rows of the matrix, shape (rows, columns), float32, contiguous, the caller's to overwrite."""
Mapped = Sequence[tuple[Span, GridMap]]


def assemble(
    shape: tuple[int, int],
    read: Read,
    axis: int,
    mapped: Mapped,
    *,
    undo: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return a matrix with the cells of one axis mapped.

    Args:
        shape: of the matrix; a vector is a matrix of one column.
        read: gives its rows; called from several threads, once for every row.
        axis: of the cells, 0 or 1.
        mapped: which cells are mapped how; they cover the axis, or there are none.
        undo: take the inverse maps.
        dtype: of the result; rounded last.

    Returns:
        A new tensor of that shape.
    """
    made = torch.empty(shape, dtype=dtype)
    rows = max(1, ENTRIES // max(1, shape[1]))
    works = (
        _by_cells(made, read, mapped, undo=undo, rows=rows)
        if mapped and axis == 0
        else (_by_rows(made, read, mapped, undo=undo, rows=rows))
    )
    # small permutations are inverted on the way, which is no work for several threads
    for _ in in_threads(lambda work: work(), alone(lambda: list(works))):
        pass
    return made


def _by_rows(
    made: Tensor, read: Read, mapped: Mapped, *, undo: bool, rows: int
) -> Iterator[Callable[[], None]]:
    """Cells, if any, lie inside the rows."""

    def fill(part: slice) -> None:
        block = read(part)
        for span, grid in mapped:
            cells = span.view(block, 1)
            cells.copy_(grid.undo(cells, 1) if undo else grid.apply(cells, 1))
        made[part] = block

    return (lambda part=part: fill(part) for part in blocks(len(made), rows))  # type: ignore[misc]


def _by_cells(
    made: Tensor, read: Read, mapped: Mapped, *, undo: bool, rows: int
) -> Iterator[Callable[[], None]]:
    """Cells are groups of rows: read where they are, written where they go."""

    def fill(span: Span, places: Tensor, turns: Tensor | None, part: slice) -> None:
        first = span.offset + part.start * span.stride
        here = part.stop - part.start
        cells = read(slice(first, first + here * span.width)).view(here, span.width, -1)
        turned = cells if turns is None else turns[part] @ cells
        span.view(made, 0)[places[part]] = turned.to(made.dtype)

    for span, grid in mapped:
        places, turns = grid.moving(span.count, undo=undo)
        together = max(1, rows // span.width) if span.stride == span.width else 1
        for part in blocks(span.count, together):
            yield lambda span=span, places=places, turns=turns, part=part: fill(  # type: ignore[misc]
                span, places, turns, part
            )

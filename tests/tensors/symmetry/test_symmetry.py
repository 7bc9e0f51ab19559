"""Symmetries against dense matrices and a slow rotary embedding."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedunlearn.tensors.symmetry import (
    GridMap,
    Span,
    assemble,
    commuting_with_rotary,
    half_split_planes,
    head_order,
    random_orthogonal,
)

KEY = bytes(range(32))


def rotary(vector: Tensor, position: int, pairs: Tensor) -> Tensor:
    """Turn every pair of places by position / 10 ** pair, one at a time, in float64."""
    turned = vector.clone()
    for frequency, (one, other) in enumerate(pairs.tolist()):
        angle = torch.tensor(position / 10.0**frequency, dtype=torch.float64)
        turned[one] = vector[one] * angle.cos() - vector[other] * angle.sin()
        turned[other] = vector[one] * angle.sin() + vector[other] * angle.cos()
    return turned


@pytest.mark.parametrize(("layout", "kept"), [("half split", True), ("neighbours", False)])
def test_rotary_planes(layout: str, kept: bool) -> None:
    """head_dim 8, positions 7 and 2, transformers' embedding: its own planes keep the score."""
    pairs = half_split_planes(8)
    assert pairs.tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    planes = pairs if layout == "half split" else torch.arange(8).view(4, 2)
    (turn,) = commuting_with_rotary(KEY, 1, 8, planes)
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 8, generator=draw, dtype=torch.float64)
    score = rotary(query, 7, pairs) @ rotary(key, 2, pairs)
    turned = rotary(turn @ query, 7, pairs) @ rotary(turn @ key, 2, pairs)
    assert (abs(float(turned - score)) < 1e-12) == kept


@pytest.mark.parametrize("rotary_places", [0, 4, 8])
def test_rotations_are_orthogonal_and_leave_the_free_places_free(rotary_places: int) -> None:
    planes = half_split_planes(rotary_places)
    turns = commuting_with_rotary(KEY, 3, 8, planes)
    eye = torch.eye(8, dtype=torch.float64).expand(3, 8, 8)
    torch.testing.assert_close(turns @ turns.mT, eye, atol=1e-14, rtol=0)
    assert not bool(turns[:, :rotary_places, rotary_places:].any())
    if rotary_places < 8:
        assert bool((turns[:, rotary_places:, rotary_places:].abs() > 1e-6).all())
    assert not torch.allclose(turns[0], turns[1])


def test_orthogonal_matrices_are_uniform() -> None:
    """Entries of a Haar matrix have mean 0 and variance 1/d; the signs of QR would shift both."""
    turns = random_orthogonal(KEY, 4000, 3)
    eye = torch.eye(3, dtype=torch.float64).expand_as(turns)
    torch.testing.assert_close(turns @ turns.mT, eye, atol=1e-13, rtol=0)
    assert float(turns.mean(0).abs().max()) < 5 * (1 / 3 / 4000) ** 0.5
    torch.testing.assert_close(turns.square().mean(0), eye[0] * 0 + 1 / 3, atol=0.03, rtol=0)


def test_head_orders_keep_groups_together() -> None:
    groups, queries = head_order(KEY, 3, 4)
    assert sorted(queries.tolist()) == list(range(12))
    assert torch.equal(queries.view(3, 4) // 4, groups[:, None].expand(3, 4))
    assert torch.equal(head_order(KEY, 3, 1)[0], head_order(KEY, 3, 1)[1])


SPANS = {
    "plain": [Span(0, 4, 3, 3)],
    "fused": [Span(0, 4, 3, 3), Span(12, 2, 3, 3), Span(18, 2, 3, 3)],
    "by head": [Span(0, 4, 3, 9), Span(3, 4, 3, 9), Span(6, 4, 3, 9)],
    "channels": [Span(0, 9, 1, 1), Span(9, 9, 1, 1)],
}


def maps(spans: list[Span], *, turn: bool, seed: int) -> list[tuple[Span, GridMap]]:
    draw = torch.Generator().manual_seed(seed)
    found = []
    for index, span in enumerate(spans):
        order = torch.randperm(span.count, generator=draw) if index != 1 else None
        groups = max(1, span.count // 2) if span.count % 2 == 0 else 1
        key = bytes([seed % 256]) * 32
        turns = random_orthogonal(key, groups, span.width, stream=index) if turn else None
        found.append((span, GridMap(order, None if turns is None else turns.float())))
    return found


def dense(size: int, mapped: list[tuple[Span, GridMap]]) -> Tensor:
    """The whole axis as one matrix, entry by entry."""
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for span, grid in mapped:
        for cell in range(span.count):
            source = cell if grid.order is None else int(grid.order[cell])
            turn = torch.eye(span.width, dtype=torch.float64)
            if grid.turns is not None:
                turn = grid.turns[cell // (span.count // len(grid.turns))].double()
            to, since = (span.offset + c * span.stride for c in (cell, source))
            matrix[to : to + span.width, since : since + span.width] = turn
    return matrix


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(sorted(SPANS)), st.booleans(), st.sampled_from([0, 1]), st.integers(1, 5),
    st.integers(0, 100),
)  # fmt: skip
def test_assembling_is_multiplying_by_a_dense_matrix(
    layout: str, turn: bool, axis: int, other: int, seed: int
) -> None:
    mapped = maps(SPANS[layout], turn=turn, seed=seed)
    size = max(span.end for span, _ in mapped)
    shape = (size, other) if axis == 0 else (other, size)
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    matrix = dense(size, mapped)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(size).double(), atol=1e-6, rtol=0)
    expected = matrix @ weight.double() if axis == 0 else weight.double() @ matrix.T

    def made(source: Tensor, **more: Any) -> Tensor:
        return assemble(shape, lambda rows: source[rows].clone(), axis, mapped, **more)

    torch.testing.assert_close(made(weight).double(), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(made(made(weight), undo=True), weight, atol=1e-5, rtol=0)
    assert torch.equal(made(weight, dtype=torch.bfloat16), made(weight).bfloat16())
    for span, grid in mapped:
        cells = span.view(weight, axis)
        torch.testing.assert_close(grid.undo(grid.apply(cells, axis), axis), cells)


@pytest.mark.parametrize("axis", [0, 1])
def test_many_blocks_are_as_one(axis: int) -> None:
    """More entries than are worked on together, on both axes."""
    size, other = 48, 12000
    mapped = maps([Span(0, 6, 8, 8)], turn=True, seed=1)
    shape = (size, other) if axis == 0 else (other, size)
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    made = assemble(shape, lambda rows: weight[rows].clone(), axis, mapped)
    matrix = dense(size, mapped)
    expected = matrix @ weight.double() if axis == 0 else weight.double() @ matrix.T
    torch.testing.assert_close(made.double(), expected, atol=1e-5, rtol=0)


def test_every_row_is_read_once() -> None:
    seen: list[int] = []

    def read(rows: slice) -> Tensor:
        seen.extend(range(rows.start, rows.stop))
        return torch.zeros(rows.stop - rows.start, 2)

    assemble((36, 2), read, 0, maps(SPANS["by head"], turn=True, seed=0))
    assert sorted(seen) == list(range(36))


def test_a_span_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"does not fit axis 0 of \(8, 2\)"):
        Span(0, 3, 3, 3).view(torch.zeros(8, 2), 0)

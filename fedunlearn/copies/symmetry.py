"""The secret T of one layer of one copy, and its action on parameters (MPU, A.4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from fedunlearn.copies.plan import CopyPlan, Heads, Kind, Parameter
from fedunlearn.copies.secret import RoundSecret
from fedunlearn.copies.settings import Symmetry
from fedunlearn.tensors.keyed_draws import keyed_order
from fedunlearn.tensors.symmetry import (
    GridMap,
    Span,
    commuting_with_rotary,
    half_split_planes,
    head_order,
    random_orthogonal,
)
from fedunlearn.tensors.threads import alone

PARTS: Mapping[Symmetry, frozenset[str]] = {
    "full": frozenset({"ffn", "heads", "query_key", "value_output"}),
    "paper": frozenset({"ffn", "shared"}),
    "permutations": frozenset({"ffn", "heads"}),
    "none": frozenset(),
}
"""What each choice consists of; ``shared`` is one transform for all four projections."""


@dataclass(frozen=True, eq=False)
class LayerSymmetry:
    """T of one layer: a map for every kind of cell. Linear and orthogonal."""

    maps: Mapping[Kind, GridMap]

    def of(self, parameter: Parameter) -> list[tuple[Span, GridMap]]:
        """The cells of a parameter's axis, with the map of each."""
        return [(span, self.maps[kind]) for kind, span in parameter.actions]

    def undo_factor(self, parameter: Parameter, factor: Tensor, axis: int) -> Tensor:
        """Map back a LoRA factor one of whose axes is the parameter's mapped axis; float32."""
        back = factor.clone()
        rows = back if axis == 0 else back.T
        for span, grid in self.of(parameter):
            cells = span.view(rows, 0)
            cells.copy_(grid.undo(cells, 0))
        return back


@dataclass
class Symmetries:
    """T of any copy's layer, for one model and one round; the latest one is kept.

    Attributes:
        plan: of the model.
        parts: which transforms, of those in :data:`PARTS`.
        secret: that they are drawn from.
        server_round: counts from 1; 0 is for what is never published.
    """

    plan: CopyPlan
    parts: frozenset[str]
    secret: RoundSecret
    server_round: int
    _latest: tuple[tuple[int, int], LayerSymmetry] | None = field(default=None, init=False)

    def on(self, copy: int, parameter: Parameter) -> list[tuple[Span, GridMap]]:
        """The cells of a parameter's axis, with the map of each in a copy; none, if none acts."""
        return self.of(copy, parameter).of(parameter) if parameter.actions else []

    def of(self, copy: int, parameter: Parameter) -> LayerSymmetry:
        """T of the parameter's layer in a copy."""
        place = copy, parameter.layer
        if self._latest is None or self._latest[0] != place:
            self._latest = place, alone(partial(self._draw, *place))
        return self._latest[1]

    def _draw(self, copy: int, layer: int) -> LayerSymmetry:
        return draw_symmetry(
            self.plan,
            self.parts,
            self.secret,
            server_round=self.server_round,
            copy=copy,
            layer=layer,
        )


def draw_symmetry(
    plan: CopyPlan,
    parts: frozenset[str],
    secret: RoundSecret,
    *,
    server_round: int,
    copy: int,
    layer: int,
) -> LayerSymmetry:
    """Draw T of one layer of one copy in one round.

    Args:
        plan: of the model.
        parts: which transforms, of those in :data:`PARTS`; what does not hold for the model is
            left out.
        secret: that the draws come from.
        server_round: counts from 1.
        copy: counts from 1.
        layer: counts from 0.
    """

    def key(purpose: str) -> bytes:
        return secret.derive("symmetry", server_round, copy, layer, purpose)

    heads = plan.heads
    order: tuple[Tensor | None, Tensor | None] = None, None
    if "heads" in parts and heads.move:
        order = head_order(key("heads"), heads.key_values, heads.queries // heads.key_values)
    ffn = keyed_order(key("ffn"), (plan.channels(layer),)) if "ffn" in parts else None
    query_key, value_output = _turns(heads, parts, key("query_key"), key("value_output"))
    return LayerSymmetry(
        {
            "q": GridMap(order[1], query_key),
            "k": GridMap(order[0], query_key),
            "v": GridMap(order[0], value_output),
            "o": GridMap(order[1], value_output),
            "ffn": GridMap(ffn),
        }
    )


def _turns(
    heads: Heads, parts: frozenset[str], query_key: bytes, value_output: bytes
) -> tuple[Tensor | None, Tensor | None]:
    """One matrix a key-value head, for queries and keys, and for values and outputs; float32."""
    left = right = None
    if parts & {"query_key", "shared"}:
        planes = half_split_planes(heads.rotary)
        left = commuting_with_rotary(query_key, heads.key_values, heads.width, planes).float()
    if "shared" in parts:
        right = left
    elif "value_output" in parts:
        right = random_orthogonal(value_output, heads.key_values, heads.width).float()
    return left if heads.turn else None, right

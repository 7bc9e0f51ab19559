"""Which parameter of a model belongs to which block, and which symmetry acts on which axis."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, get_args

from fedunlearn.copies.families import FAMILIES, Family, Part
from fedunlearn.errors import InputError
from fedunlearn.registry import nearest
from fedunlearn.tensors.symmetry import Span

Kind = Literal["q", "k", "v", "o", "ffn"]
"""What the cells of a span are: heads by their use, or FFN channels."""
Action = tuple[Kind, Span]


@dataclass(frozen=True)
class Parameter:
    """One tensor of the model.

    Attributes:
        block: whose noise level it has: ``layer 0`` ..., ``embeddings``, ``final norm``, ``head``.
        shape: of the tensor as it is stored.
        layer: number of the layer whose symmetry acts on it; -1 where none does.
        axis: on which it acts, where it does.
        actions: which cells it moves and turns.
        transposed: a weight stored as (d_in, d_out).
    """

    block: str
    shape: tuple[int, ...]
    layer: int = -1
    axis: int = 0
    actions: tuple[Action, ...] = ()
    transposed: bool = False


@dataclass(frozen=True)
class Heads:
    """How attention is laid out in every layer.

    Attributes:
        queries: number of query heads.
        key_values: number of key-value heads.
        width: head dimension.
        rotary: the first places of a head, which rotary embedding turns.
        turn: queries and keys may be turned.
        move: heads may change places.
    """

    queries: int
    key_values: int
    width: int
    rotary: int
    turn: bool
    move: bool


@dataclass(frozen=True)
class CopyPlan:
    """A model as the copies see it. Made by :func:`plan_copies`.

    Attributes:
        architecture: transformers' ``model_type``.
        parameters: each once, in publishing order, block by block; of tied ones the first.
        tied: name of a parameter to the one of ``parameters`` whose storage it shares.
        heads: layout of attention.
        notes: what does not hold for this model, for log and report, e.g. why queries and keys
            are not rotated.
    """

    architecture: str
    parameters: Mapping[str, Parameter]
    tied: Mapping[str, str]
    heads: Heads
    notes: tuple[str, ...]

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name to shape, in publishing order."""
        return {name: parameter.shape for name, parameter in self.parameters.items()}

    @cached_property
    def blocks(self) -> Mapping[str, Sequence[str]]:
        """Block to the names of its parameters, in publishing order."""
        found: dict[str, list[str]] = {}
        for name, parameter in self.parameters.items():
            found.setdefault(parameter.block, []).append(name)
        return found

    def channels(self, layer: int) -> int:
        """FFN channels of a layer."""
        actions = (self.parameters[name].actions for name in self.blocks[f"layer {layer}"])
        return next(span.count for some in actions for kind, span in some if kind == "ffn")

    def parameter(self, name: str) -> Parameter:
        """Look a parameter up.

        Raises:
            InputError: the plan has none of that name.
        """
        if name not in self.parameters:
            raise InputError(
                f"{name!r} is no parameter of the copies{nearest(name, list(self.parameters))}"
            )
        return self.parameters[name]


def plan_copies(config: Any, shapes: Mapping[str, Sequence[int]]) -> CopyPlan:
    """Plan the copies of a transformers model.

    Args:
        config: the model's configuration.
        shapes: name and shape of every parameter, as the state dict has them; of tied ones both
            or one.

    Raises:
        InputError: an architecture, a feature or a parameter that the family table does not
            know, or a shape that does not fit the configuration; by name.
    """
    architecture = str(getattr(config, "model_type", None))
    if architecture not in FAMILIES:
        raise InputError(
            f"copies of architecture {architecture!r} are not supported: nothing is known of its "
            f"symmetries; supported: {', '.join(sorted(FAMILIES))}"
        )
    family = FAMILIES[architecture]
    heads, notes = _read_heads(config, family, architecture)
    tied = _tied(config, family, shapes)
    reader = _Reader(architecture, family, heads)
    found = {name: reader.read(name, shapes[name]) for name in shapes if name not in tied}
    ordered = dict(sorted(found.items(), key=lambda item: _place(item[1])))
    plan = CopyPlan(architecture, ordered, tied, heads, notes)
    _check_layers(plan, int(config.num_hidden_layers))
    return plan


def _read_heads(config: Any, family: Family, architecture: str) -> tuple[Heads, tuple[str, ...]]:
    for key, known in (family.forbidden or {}).items():
        if getattr(config, key, known) != known:
            value = getattr(config, key)
            raise InputError(f"copies of {architecture!r} with {key}={value!r} are not supported")
    queries = int(config.num_attention_heads)
    key_values = int(getattr(config, "num_key_value_heads", None) or queries)
    if queries % key_values:
        raise InputError(f"{queries} query heads cannot share {key_values} key-value heads")
    width = int(getattr(config, "head_dim", None) or config.hidden_size // queries)
    try:
        rotary = family.rotary(config, width)
    except ValueError as fault:
        raise InputError(f"copies of {architecture!r} are not supported: {fault}") from None
    norm = family.norm(config)
    notes = [f"queries and keys are not turned: {norm}"] if norm else []
    if norm and family.own_norms:
        notes.append("heads do not change places: each has a norm of its own")
    move = not (norm and family.own_norms)
    return Heads(queries, key_values, width, rotary, not norm, move), tuple(notes)


def _tied(config: Any, family: Family, shapes: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """The head, where it shares its storage with the embeddings."""
    head, embedding = f"{family.head}.weight", f"{family.embeddings[0]}.weight"
    tied = bool(getattr(config, "tie_word_embeddings", False)) and embedding in shapes
    return {head: embedding} if tied else {}


def _place(parameter: Parameter) -> tuple[int, int]:
    """Sort key: embeddings, layers, final norm, head; parameters of a block as they came."""
    if parameter.block.startswith("layer "):
        return 1, int(parameter.block.removeprefix("layer "))
    return {"embeddings": 0, "final norm": 2, "head": 3}[parameter.block], 0


def _check_layers(plan: CopyPlan, layers: int) -> None:
    """Refuse layers where a symmetry would act on one side only."""
    for layer in range(layers):
        names = plan.blocks.get(f"layer {layer}", ())
        acting = [action for name in names for action in plan.parameters[name].actions]
        if lacking := set(get_args(Kind)) - {kind for kind, _ in acting}:
            raise InputError(
                f"layer {layer} of the weights lacks parameters for {', '.join(sorted(lacking))}; "
                "copies need the whole model"
            )
        if len(counts := {span.count for kind, span in acting if kind == "ffn"}) != 1:
            raise InputError(f"layer {layer} has FFNs of {sorted(counts)} channels, expected one")


@dataclass(frozen=True)
class _Reader:
    """Reads one parameter off its name."""

    architecture: str
    family: Family
    heads: Heads

    def read(self, name: str, shape: Sequence[int]) -> Parameter:
        size = tuple(int(length) for length in shape)
        module, _, kind = name.rpartition(".")
        outside = dict.fromkeys(self.family.embeddings, "embeddings")
        outside |= {self.family.final_norm: "final norm", self.family.head: "head"}
        if module in outside:
            return Parameter(outside[module], size)
        layer, part = self._part(name, module)
        transposed = self.family.transposed and len(size) == 2
        inwards = part in ("o", "down")
        if part == "plain" or (kind == "bias" and inwards):
            return Parameter(f"layer {layer}", size, transposed=transposed)
        axis = 0 if len(size) == 1 else int(inwards != transposed)
        actions = self._actions(part, size[axis])
        if max(span.end for _, span in actions) != size[axis]:
            raise InputError(
                f"{name!r} of shape {size} does not fit the configuration: axis {axis} should "
                f"have {max(span.end for _, span in actions)} places"
            )
        return Parameter(f"layer {layer}", size, layer, axis, actions, transposed)

    def _part(self, name: str, module: str) -> tuple[int, Part]:
        found = re.fullmatch(rf"{re.escape(self.family.layers)}\.(\d+)\.(.+)", module)
        for pattern, part in self.family.modules.items():
            if found and fnmatchcase(found[2], pattern):
                return int(found[1]), part
        raise InputError(
            f"copies of {self.architecture!r} are not supported with parameter {name!r}: nothing "
            "is known of its part in the symmetries"
        )

    def _actions(self, part: Part, size: int) -> tuple[Action, ...]:
        """Cells on an axis of ``size`` places."""
        heads, width = self.heads, self.heads.width
        queries, keys = heads.queries * width, heads.key_values * width
        match part:
            case "q" | "o":
                return ((part, Span(0, heads.queries, width, width)),)
            case "k" | "v":
                return ((part, Span(0, heads.key_values, width, width)),)
            case "qkv":
                return (
                    ("q", Span(0, heads.queries, width, width)),
                    ("k", Span(queries, heads.key_values, width, width)),
                    ("v", Span(queries + keys, heads.key_values, width, width)),
                )
            case "qkv_by_head":
                return (
                    ("q", Span(0, heads.queries, width, 3 * width)),
                    ("k", Span(width, heads.queries, width, 3 * width)),
                    ("v", Span(2 * width, heads.queries, width, 3 * width)),
                )
            case "up_pair":
                half = size // 2
                return ("ffn", Span(0, half, 1, 1)), ("ffn", Span(half, half, 1, 1))
            case _:
                return (("ffn", Span(0, size, 1, 1)),)

"""Which parameter of a model belongs to which block, and which symmetry acts on which axis."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CopyPlan:
    """A model as the copies see it. Made by :func:`plan_copies`.

    Attributes:
        architecture: transformers' ``model_type``.
        shapes: every parameter once, in publishing order (block by block), with its shape; of
            tied ones the first.
        tied: name of a parameter to the one of ``shapes`` whose storage it shares.
        notes: what does not hold for this model, for log and report, e.g. why queries and keys
            are not rotated.
    """

    architecture: str
    shapes: Mapping[str, tuple[int, ...]]
    tied: Mapping[str, str]
    notes: tuple[str, ...]

    def blocks(self) -> Mapping[str, Sequence[str]]:
        """Block to its parameters: ``layer 0`` ..., ``embeddings``, ``final norm``, ``head``."""
        raise NotImplementedError


def plan_copies(config: Any, shapes: Mapping[str, Sequence[int]]) -> CopyPlan:
    """Plan the copies of a transformers model.

    Args:
        config: the model's configuration (or a mapping of its values).
        shapes: name and shape of every parameter, as the state dict has them; of tied ones both
            or one.

    Raises:
        InputError: an architecture, a feature or a parameter that the family table does not
            know, by name.
    """
    raise NotImplementedError


def shapes_of(weights: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor."""
    raise NotImplementedError

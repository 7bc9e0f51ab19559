"""What an upload may look like, known before it comes: every name and the sizes it may have.

The server knows which weights it asked for. An array with another name, or announced to be larger
than such a weight can need, is refused before its bytes are looked at, so that nobody can make the
server reserve memory for what it did not ask for.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from fedunlearn.errors import SummaryError
from fedunlearn.models.plain_lora import LoraLayout
from fedunlearn.names import shown
from fedunlearn.summary.layout import adapter_keys, module_name

LONGEST_TEXT = 1 << 24
"""Characters of the JSON beside the arrays, at most."""
_LONGEST_NAME = 300
_BFLOAT16, _FLOAT32 = 2, 4

Shape = tuple[int, ...]


@dataclass(frozen=True)
class UploadForm:
    """Arrays by name, each with the shapes it may have.

    Attributes:
        shapes: name to its possible shapes.
        at_most: name of an array of one dimension to its greatest length.
    """

    shapes: Mapping[str, Collection[Shape]]
    at_most: Mapping[str, int]

    def admit(self, name: str, shape: Shape) -> None:
        """Refuse an array by what is announced of it.

        Raises:
            SummaryError: another name than was asked for, or another shape.
        """
        if name in self.at_most:
            if len(shape) == 1 and 0 <= shape[0] <= self.at_most[name]:
                return
            expected = f"one dimension of at most {self.at_most[name]}"
        elif name in self.shapes:
            if shape in self.shapes[name]:
                return
            expected = " or ".join(map(str, sorted(self.shapes[name])))
        else:
            known = [*self.shapes] if len(name) <= _LONGEST_NAME else []
            close = [f"; did you mean {one!r}?" for one in get_close_matches(name, known, n=1)]
            raise SummaryError(f"array {shown(name)} was not asked for{''.join(close)}")
        raise SummaryError(f"array {shown(name)} has shape {shown(shape)}, expected {expected}")


def summary_form(weights: Mapping[str, Shape], lora: LoraLayout) -> UploadForm:
    """The form of a summary (docs/FILES.md, on the wire) for these adapted weights.

    Args:
        weights: base parameter name to shape, either way round.
        lora: as the server asked for it.
    """
    shapes: dict[str, Collection[Shape]] = {}
    at_most: dict[str, int] = {}
    for name, shape in weights.items():
        size = shape[0] * shape[1]
        shapes |= {f"adapter/{key}": one for key, one in _factors(name, shape, lora).items()}
        shapes[f"fisher/{name}"] = (shape,)
        shapes[f"bitmap/{name}"] = ((-(-size // 8),),)
        at_most[f"entries/{name}"] = size
    return UploadForm(shapes, at_most)


def factors_form(weights: Mapping[str, Shape], lora: LoraLayout) -> UploadForm:
    """The form of an adapter on any of these weights, by PEFT key."""
    shapes: dict[str, Collection[Shape]] = {}
    for name, shape in weights.items():
        if len(shape) == 2 and name.endswith(".weight"):
            shapes |= _factors(name, shape, lora)
    return UploadForm(shapes, {})


def dense_form(weights: Mapping[str, Shape]) -> UploadForm:
    """The form of a displacement of all weights."""
    return UploadForm({name: (tuple(shape),) for name, shape in weights.items()}, {})


def _factors(name: str, shape: Shape, lora: LoraLayout) -> dict[str, Collection[Shape]]:
    rank = lora.rank_of(module_name(name))
    key_a, key_b = adapter_keys(name)
    return {key_a: {(rank, side) for side in shape}, key_b: {(side, rank) for side in shape}}


def upload_bytes(weights: Mapping[str, Shape], lora: LoraLayout, *, kept: float) -> int:
    """Estimate the bytes of the arrays of one summary.

    Entries of a Fisher that are equal to the smallest one kept are all sent, and not foreseen.

    Args:
        weights: base parameter name to shape.
        lora: as the server asked for it.
        kept: fraction of the Fisher's entries that are sent.
    """
    total = 0
    for name, (rows, columns) in weights.items():
        size = rows * columns
        total += _FLOAT32 * lora.rank_of(module_name(name)) * (rows + columns)
        bitmap = -(-size // 8) + _BFLOAT16 * (int(kept * size) + 1)
        total += min(_BFLOAT16 * size, bitmap) if kept < 1.0 else _BFLOAT16 * size
    return total


def check_text(text: str, what: str) -> None:
    """Refuse a text too long to be parsed.

    Raises:
        SummaryError: it is.
    """
    if len(text) > LONGEST_TEXT:
        raise SummaryError(f"{what} has {len(text)} characters, at most {LONGEST_TEXT} are read")

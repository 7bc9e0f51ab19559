"""Published copies and updates on the wire: named numpy arrays, and JSON beside them."""

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedunlearn.copies.update import CopyUpdate, UpdateMeta, decode_meta, encode_meta
from fedunlearn.errors import SummaryError
from fedunlearn.names import shown
from fedunlearn.tensors.arrays import Array, dtype_name, to_array, to_tensor

Arrays = dict[str, Array]


def encode_tensors(tensors: Mapping[str, Tensor]) -> tuple[Arrays, str]:
    """Encode named tensors.

    Returns:
        An array a tensor, sharing its memory where it can, and a JSON object of their dtypes.
    """
    arrays = {name: to_array(tensor) for name, tensor in tensors.items()}
    return arrays, json.dumps({name: dtype_name(tensor) for name, tensor in tensors.items()})


def decode_tensors(arrays: Mapping[str, Any], dtypes_json: str) -> dict[str, Tensor]:
    """Decode named tensors.

    Raises:
        SummaryError: arrays and dtypes do not pair up, or an array is not what it is said to be.
    """
    try:
        dtypes = json.loads(dtypes_json)
    except (ValueError, RecursionError) as fault:
        raise SummaryError(f"the list of dtypes is broken: {fault}") from None
    if not isinstance(dtypes, dict):
        raise SummaryError(f"the list of dtypes is {shown(dtypes)}, expected an object")
    if unlike := sorted(map(str, arrays.keys() ^ dtypes.keys())):
        raise SummaryError(f"arrays and their dtypes do not pair up at {shown(unlike[0])}")
    decoded: dict[str, Tensor] = {}
    for name in sorted(dtypes):
        try:
            decoded[name] = to_tensor(arrays[name], dtypes[name])
        except ValueError as fault:
            raise SummaryError(f"array {shown(name)} {fault}") from None
    return decoded


def update_to_wire(update: CopyUpdate) -> tuple[Arrays, dict[str, str]]:
    """Encode an update: arrays, and texts ``dtypes`` and ``meta``."""
    arrays, dtypes = encode_tensors(update.tensors)
    return arrays, {"dtypes": dtypes, "meta": encode_meta(update.meta)}


def update_from_wire(arrays: Mapping[str, Any], texts: Mapping[str, object]) -> CopyUpdate:
    """Decode an update that anybody may have sent; what it means is checked elsewhere.

    Raises:
        SummaryError: whatever cannot be read.
    """
    meta: UpdateMeta = decode_meta(_text(texts, "meta"))
    try:
        return CopyUpdate(meta, decode_tensors(arrays, _text(texts, "dtypes")))
    except SummaryError as fault:
        raise SummaryError(f"the update of client {meta.client_id!r}: {fault}") from None


def _text(texts: Mapping[str, object], name: str) -> str:
    text = texts.get(name)
    if not isinstance(text, str):
        raise SummaryError(f"the update has no {name!r}")
    return text

"""Summaries on the wire: named numpy arrays and one JSON text.

numpy has no bfloat16, so those tensors travel as the uint16 of their bits, with their dtype
written in the JSON. Nothing in here trusts what it decodes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedunlearn.errors import SummaryError
from fedunlearn.storage import to_json
from fedunlearn.summary.client_summary import ClientSummary
from fedunlearn.summary.meta import name_client, read_meta, shown
from fedunlearn.tensors.bits import bf16_to_bits, bits_to_bf16

Arrays = dict[str, np.ndarray[Any, Any]]
_PARTS = ("adapter", "fisher")
_WIRE_DTYPES = {"bfloat16": "uint16", "float16": "float16", "float32": "float32"}


def to_wire(summary: ClientSummary) -> tuple[Arrays, str]:
    """Encode a summary.

    Returns:
        Arrays named ``adapter/<PEFT key>`` and ``fisher/<parameter>``, and a JSON object with
        ``meta``, ``adapter_config`` and ``dtypes`` (array name to the tensor's dtype).
    """
    tensors = {
        f"{part}/{key}": tensor
        for part in _PARTS
        for key, tensor in sorted(getattr(summary, part).items())
    }
    arrays = {name: _to_array(tensor) for name, tensor in tensors.items()}
    document = {
        "meta": asdict(summary.meta),
        "adapter_config": summary.adapter_config,
        "dtypes": {name: _dtype_name(tensor) for name, tensor in tensors.items()},
    }
    return arrays, to_json(document)


def from_wire(arrays: Mapping[str, np.ndarray[Any, Any]], meta_json: str) -> ClientSummary:
    """Decode and validate a summary that anybody may have sent.

    Args:
        arrays: as :func:`to_wire` names them, in any order.
        meta_json: the JSON object beside them.

    Raises:
        SummaryError: whatever is wrong with it; the text names the client and the tensor.
    """
    document = _read_document(meta_json)
    raw = _part(document, "meta", who=name_client(None))
    who = name_client(raw.get("client_id"))
    meta = read_meta(raw)
    dtypes = _part(document, "dtypes", who=who)
    if unlike := sorted(map(str, arrays.keys() ^ dtypes.keys())):
        raise SummaryError(f"{who}: arrays and their dtypes do not pair up at {shown(unlike[0])}")
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
    for name in sorted(arrays):
        part, slash, key = name.partition("/")
        if part not in parts or not slash:
            raise SummaryError(f"{who}: unknown array {shown(name)}")
        try:
            parts[part][key] = _to_tensor(arrays[name], dtypes[name])
        except SummaryError as fault:
            raise SummaryError(f"{who}: array {shown(name)} {fault}") from None
    summary = ClientSummary(
        meta=meta, adapter_config=_part(document, "adapter_config", who=who), **parts
    )
    summary.validate()
    return summary


def _read_document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, TypeError, RecursionError) as fault:
        raise SummaryError(f"{name_client(None)}: the summary's JSON is broken: {fault}") from None
    if not isinstance(document, dict):
        raise SummaryError(f"{name_client(None)}: the summary's JSON is no object")
    return document


def _part(document: Mapping[str, Any], name: str, *, who: str) -> dict[str, Any]:
    part = document.get(name)
    if not isinstance(part, dict):
        raise SummaryError(f"{who}: the summary's {name!r} is missing or no object")
    return part


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _to_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    if tensor.dtype == torch.bfloat16:
        return bf16_to_bits(tensor)
    return tensor.detach().cpu().contiguous().numpy()


def _to_tensor(array: object, dtype: object) -> Tensor:
    expected = _WIRE_DTYPES.get(dtype) if isinstance(dtype, str) else None
    if expected is None:
        known = ", ".join(_WIRE_DTYPES)
        raise SummaryError(f"is said to be {shown(dtype)}, expected one of {known}")
    if not isinstance(array, np.ndarray) or array.dtype != np.dtype(expected):
        sort = getattr(array, "dtype", type(array).__name__)
        raise SummaryError(f"came as {sort}, expected {expected} for a {dtype} tensor")
    if dtype == "bfloat16":
        return bits_to_bf16(array)
    return torch.from_numpy(np.array(array, order="C"))  # a copy: the buffer may be read-only

"""Summaries on the wire: named numpy arrays and one JSON text.

numpy has no bfloat16, so those tensors travel as the uint16 of their bits, with their dtype
written in the JSON. A Fisher most of whose entries are zero travels as a bitmap and its other
entries, with its shape in the JSON; nothing is lost by it. Nothing in here trusts what it
decodes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from fedunlearn.errors import InputError, SummaryError
from fedunlearn.models.plain_lora import refuse_other_layout
from fedunlearn.names import shown
from fedunlearn.storage import to_json
from fedunlearn.summary.client_summary import ClientSummary
from fedunlearn.summary.forms import check_text
from fedunlearn.summary.meta import name_client, read_meta
from fedunlearn.tensors.arrays import dtype_name, to_array, to_tensor
from fedunlearn.tensors.kept import KeptEntries, kept_bytes

Arrays = dict[str, np.ndarray[Any, Any]]
_PARTS = ("adapter", "fisher")


def to_wire(summary: ClientSummary) -> tuple[Arrays, str]:
    """Encode a summary.

    Returns:
        Arrays named ``adapter/<PEFT key>`` and ``fisher/<parameter>``, the latter replaced by
        ``bitmap/<parameter>`` and ``entries/<parameter>`` where that is smaller; and a JSON
        object with ``meta``, ``adapter_config``, ``dtypes`` (name of an array to the tensor's
        dtype) and ``shapes`` (parameter to the shape of a Fisher that comes as a bitmap).
    """
    arrays: Arrays = {}
    dtypes: dict[str, str] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for key, tensor in sorted(summary.adapter.items()):
        arrays[f"adapter/{key}"] = to_array(tensor)
        dtypes[f"adapter/{key}"] = dtype_name(tensor)
    for key, tensor in sorted(summary.fisher.items()):
        if _smaller_as_bitmap(tensor):
            kept = KeptEntries.of(tensor)
            shapes[key] = kept.shape
            arrays[f"bitmap/{key}"], arrays[f"entries/{key}"] = kept.bitmap, kept.bits
        else:
            arrays[f"fisher/{key}"] = to_array(tensor)
            dtypes[f"fisher/{key}"] = dtype_name(tensor)
    document = {
        "meta": asdict(summary.meta),
        "adapter_config": summary.adapter_config,
        "dtypes": dtypes,
        "shapes": shapes,
    }
    return arrays, to_json(document)


def wire_bytes(summary: ClientSummary) -> int:
    """Bytes of the arrays that :func:`to_wire` makes of a summary."""
    adapter = sum(tensor.nbytes for tensor in summary.adapter.values())
    return adapter + sum(min(t.nbytes, kept_bytes(t)) for t in summary.fisher.values())


def _smaller_as_bitmap(fisher: Tensor) -> bool:
    return dtype_name(fisher) == "bfloat16" and kept_bytes(fisher) < fisher.nbytes


def from_wire(
    arrays: Mapping[str, np.ndarray[Any, Any]],
    meta_json: str,
    *,
    asked: Mapping[str, Any] | None = None,
) -> ClientSummary:
    """Decode and validate a summary that anybody may have sent.

    Args:
        arrays: as :func:`to_wire` names them, in any order.
        meta_json: the JSON object beside them.
        asked: ranks and scalings that the adapter must have, see
            :func:`~fedunlearn.models.plain_lora.refuse_other_layout`; ``None``: any.

    Raises:
        SummaryError: whatever is wrong with it; the text names the client and the tensor.
    """
    document = _read_document(meta_json)
    raw = _part(document, "meta", who=name_client(None))
    who = name_client(raw.get("client_id"))
    meta = read_meta(raw)
    dtypes, shapes = (_part(document, part, who=who) for part in ("dtypes", "shapes"))
    adapter_config = _part(document, "adapter_config", who=who)
    try:
        refuse_other_layout(adapter_config, asked or {})
    except InputError as fault:
        raise SummaryError(f"{who}: {fault}") from None
    pairs = {f"{part}/{key}" for part in ("bitmap", "entries") for key in shapes}
    if unlike := sorted(map(str, arrays.keys() ^ (dtypes.keys() | pairs))):
        raise SummaryError(f"{who}: arrays and their dtypes do not pair up at {shown(unlike[0])}")
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
    for key, shape in shapes.items():
        try:
            parts["fisher"][key] = _from_bitmap(
                shape, arrays[f"bitmap/{key}"], arrays[f"entries/{key}"]
            )
        except (SummaryError, ValueError) as fault:
            raise SummaryError(f"{who}: Fisher {shown(key)} {fault}") from None
    for name in sorted(arrays.keys() - pairs):
        part, slash, key = name.partition("/")
        if part == "fisher" and key in shapes:
            raise SummaryError(f"{who}: Fisher {shown(key)} comes twice")
        if part not in parts or not slash:
            raise SummaryError(f"{who}: unknown array {shown(name)}")
        try:
            parts[part][key] = to_tensor(arrays[name], dtypes[name])
        except ValueError as fault:
            raise SummaryError(f"{who}: array {shown(name)} {fault}") from None
    summary = ClientSummary(meta=meta, adapter_config=adapter_config, **parts)
    summary.validate()
    return summary


def _read_document(text: str) -> dict[str, Any]:
    if isinstance(text, str):
        check_text(text, "the summary's JSON")
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


def _from_bitmap(shape: object, bitmap: object, entries: object) -> Tensor:
    if not isinstance(shape, list) or not all(type(side) is int for side in shape):
        raise SummaryError(f"has shape {shown(shape)}, expected whole numbers")
    if not isinstance(bitmap, np.ndarray) or not isinstance(entries, np.ndarray):
        raise SummaryError(f"came as {type(bitmap).__name__} and {type(entries).__name__}")
    return KeptEntries(tuple(shape), bitmap, entries).tensor()

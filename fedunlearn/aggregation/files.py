"""Merges on disk: ``delta.safetensors`` and ``merge.json``."""

from dataclasses import asdict
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError

from fedunlearn.aggregation.outcome import FORMAT_VERSION, MergeReport, MergeResult
from fedunlearn.errors import InputError
from fedunlearn.storage import TensorFile, atomic_folder, read_json, write_json, write_tensors

DELTA_FILE = "delta.safetensors"
REPORT_FILE = "merge.json"


def write_merge(result: MergeResult, folder: Path) -> None:
    """Write a merge as ``folder``, whole or not at all; an earlier one is replaced.

    Raises:
        InputError: something that is no merge is in the way.
    """
    with atomic_folder(folder, marker=REPORT_FILE) as partial:
        write_tensors(partial / DELTA_FILE, result.delta)
        write_json(partial / REPORT_FILE, asdict(result.report))


def read_merge(folder: Path) -> MergeResult:
    """Read a merge back.

    Raises:
        InputError: a file is missing or malformed, or the two do not belong together.
    """
    raw = read_json(folder / REPORT_FILE)
    if raw.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{folder / REPORT_FILE} has format version {raw.get('format_version')!r}, this "
            f"version of fedunlearn reads {FORMAT_VERSION}"
        )
    try:
        report = TypeAdapter(MergeReport).validate_python(raw)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{folder / REPORT_FILE}: {where}: {first['msg']}") from None
    delta = dict(TensorFile(folder / DELTA_FILE))
    if unlike := sorted(delta.keys() ^ report.tensors.keys()):
        raise InputError(f"{folder}: {DELTA_FILE} and {REPORT_FILE} differ at {unlike[0]!r}")
    for name, update in delta.items():
        if update.ndim != 2 or not update.numel():
            shape = tuple(update.shape)
            raise InputError(f"{folder / DELTA_FILE}: {name!r} must be a matrix, has shape {shape}")
        if update.dtype != torch.float32 or not bool(update.isfinite().all()):
            raise InputError(f"{folder / DELTA_FILE}: {name!r} must be float32 and finite")
    return MergeResult(delta, report)

"""Merges on disk: ``delta.safetensors`` and ``merge.json``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError

from fedunlearn.aggregation.choices import MergeSettings
from fedunlearn.aggregation.merger import Merger
from fedunlearn.aggregation.outcome import FORMAT_VERSION, MergeReport, MergeResult
from fedunlearn.aggregation.spread import Spread, in_turn
from fedunlearn.errors import InputError
from fedunlearn.storage import (
    TensorFile,
    TensorWriter,
    atomic_folder,
    read_json,
    write_json,
    write_tensors,
)
from fedunlearn.summary import ClientSummary

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


def merge_to(
    folder: Path,
    summaries: Sequence[ClientSummary],
    merge: MergeSettings,
    *,
    spread: Spread = in_turn,
) -> MergeReport:
    """Merge once, and write each weight as soon as it is finished.

    One weight is in memory at a time, for each of those who work. ``folder`` appears whole or
    not at all; an earlier merge is replaced.

    Raises:
        SummaryError: summaries that do not belong together.
        InputError: an unknown method or option, a budget that does not fit the clients, or
            something that is no merge is in the way.
    """
    merger = Merger(summaries, merge.alpha, merge.eps0, keep=0, spread=spread)
    with atomic_folder(folder, marker=REPORT_FILE) as partial:
        merging = merger.stream(merge)
        with TensorWriter(partial / DELTA_FILE, merging.shapes) as writer:
            for one in merging:
                writer.write(one.name, one.update)
        report = merging.report()
        write_json(partial / REPORT_FILE, asdict(report))
    return report


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

"""Summaries on disk: a folder each, of which the adapter part loads with stock PEFT."""

from dataclasses import asdict
from pathlib import Path

from fedunlearn.errors import InputError, SummaryError
from fedunlearn.storage import TensorFile, atomic_folder, read_json, write_json, write_tensors
from fedunlearn.summary.client_summary import ClientSummary
from fedunlearn.summary.consistency import check_consistent
from fedunlearn.summary.meta import read_meta

SUMMARY_FILE = "summary.json"
ADAPTER_CONFIG_FILE = "adapter_config.json"
ADAPTER_FILE = "adapter_model.safetensors"
FISHER_FILE = "fisher.safetensors"


def save_summary(summary: ClientSummary, folder: Path) -> None:
    """Write a valid summary as ``folder``, whole or not at all.

    An earlier summary at the same place is replaced.

    Raises:
        SummaryError: the summary is not valid; nothing is written.
        InputError: something that is no summary is in the way.
    """
    summary.validate()
    with atomic_folder(folder, marker=SUMMARY_FILE) as partial:
        write_tensors(partial / ADAPTER_FILE, summary.adapter)
        write_tensors(partial / FISHER_FILE, summary.fisher)
        write_json(partial / ADAPTER_CONFIG_FILE, summary.adapter_config)
        write_json(partial / SUMMARY_FILE, asdict(summary.meta))


def open_summary(folder: Path) -> ClientSummary:
    """Open a summary whose tensors stay on disk until asked for, and validate it.

    Raises:
        SummaryError: a file is missing, truncated or malformed, or the summary is not valid.
    """
    try:
        summary = ClientSummary(
            meta=read_meta(read_json(folder / SUMMARY_FILE)),
            adapter_config=read_json(folder / ADAPTER_CONFIG_FILE),
            adapter=TensorFile(folder / ADAPTER_FILE),
            fisher=TensorFile(folder / FISHER_FILE),
        )
        summary.validate()
    except InputError as fault:
        raise SummaryError(f"summary {folder}: {fault}") from None
    return summary


def load_summary(folder: Path) -> ClientSummary:
    """Read a summary into memory.

    Raises:
        SummaryError: as :func:`open_summary`.
    """
    opened = open_summary(folder)
    return ClientSummary(
        meta=opened.meta,
        adapter_config=opened.adapter_config,
        adapter=dict(opened.adapter),
        fisher=dict(opened.fisher),
    )


def open_summaries(folder: Path) -> list[ClientSummary]:
    """Open every summary below ``folder``, tensors on disk, and check that they fit together.

    Folders whose name begins with a dot are unfinished and left out; any other folder must be a
    summary, so that none is dropped in silence.

    Returns:
        At least one summary, in the order of their client ids.

    Raises:
        SummaryError: no summary there, a bad one, or two that do not fit; both are named.
    """
    if not folder.is_dir():
        raise SummaryError(f"{folder} is no folder of summaries")
    found = sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
    if not found:
        raise SummaryError(f"{folder} holds no summary")
    return check_consistent([open_summary(path) for path in found])

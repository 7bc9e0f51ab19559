"""Loads a data set from the Hugging Face hub through ``datasets``, its cache included.

``datasets`` is imported when a data set is first loaded. With ``HF_HUB_OFFLINE=1`` it takes what
its cache holds and calls nobody.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fedunlearn.data.rows import Row
from fedunlearn.errors import DataError

_ACCESS = (401, 403)


def load_hub_rows(
    dataset: str, *, config: str | None, split: str, revision: str | None = None
) -> Iterator[Row]:
    """Load one split.

    Args:
        dataset: hub id, ``owner/name``.
        config: configuration (subset); ``None``: the data set's default.
        split: of the configuration.
        revision: commit, tag or branch that pins the data; ``None``: the newest.

    Raises:
        DataError: the data set, configuration, split or revision does not exist, access to it is
            restricted, or the hub cannot be reached; the text says which and what to do.
    """
    named = f"{dataset} {config}/{split}" if config else f"{dataset} {split}"
    import datasets

    try:
        with _no_progress_bars():
            loaded = datasets.load_dataset(dataset, name=config, split=split, revision=revision)
    except Exception as fault:  # of several libraries, and not one family
        raise DataError(f"{named}: {_reason(fault, dataset, revision)}") from fault
    for number, values in enumerate(loaded, start=1):
        yield Row(values, f"{named}, row {number}")


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Keep the bars of ``datasets`` off the terminal, which the caller may be drawing on."""
    import datasets

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()


def _reason(fault: BaseException, dataset: str, revision: str | None) -> str:
    """Say what went wrong and what to do, from whichever library it comes."""
    chain = list(_chain(fault))
    names = {cls.__name__ for one in chain for cls in type(one).__mro__}
    said = " ".join(str(one) for one in chain)
    copy = "or give a local copy with `path`"
    if names & {"GatedRepoError"} or "gated" in said.lower() or _status(chain) in _ACCESS:
        code = f" (HTTP {status})" if (status := _status(chain)) in _ACCESS else ""
        return (
            f"access is restricted{code}: ask for it on https://huggingface.co/datasets/{dataset}, "
            f"then log in with `hf auth login` or set HF_TOKEN, {copy}"
        )
    if "RevisionNotFoundError" in names:
        return f"there is no revision {revision!r}: take a commit, tag or branch of the data set"
    if names & {
        "OfflineModeIsEnabled",
        "LocalEntryNotFoundError",
        "ConnectionError",
        "TransportError",
    }:
        return (
            "the hub cannot be reached and the data is not in the cache: go online once, check "
            f"HF_HUB_OFFLINE and HF_HOME, {copy} ({_first_line(fault)})"
        )
    if names & {"DatasetNotFoundError", "RepositoryNotFoundError"}:
        return (
            "there is no such data set on the hub, or it is private: check the id, log in with "
            f"`hf auth login` if it is yours, {copy} ({_first_line(fault)})"
        )
    return f"`datasets` cannot load it: {_first_line(fault)}"


def _chain(fault: BaseException | None) -> Iterator[BaseException]:
    seen = set[int]()
    while fault is not None and id(fault) not in seen:
        seen.add(id(fault))
        yield fault
        fault = fault.__cause__ or fault.__context__


def _status(chain: list[BaseException]) -> int | None:
    """HTTP status of the first fault that carries a response."""
    for fault in chain:
        code = getattr(getattr(fault, "response", None), "status_code", None)
        if isinstance(code, int):
            return code
    return None


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]

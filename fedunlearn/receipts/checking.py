"""Checks a receipt, the files it names, and the receipt before it."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from fedunlearn.errors import InputError, RunError
from fedunlearn.receipts.document import Receipt, Seal, file_digest, read_receipt
from fedunlearn.receipts.keys import is_signed, raw, read_public_key


def verify(path: Path, *, public_key: Path | None = None, run_dir: Path | None = None) -> list[str]:
    """Check a receipt; return what was found to hold, and what could not be checked.

    Args:
        path: of ``receipt.json``.
        public_key: of the server; without it a signature is only known to fit the key that the
            receipt itself names.
        run_dir: where the files lie; by default beside the receipt.

    Raises:
        InputError: the receipt or the key cannot be read.
        RunError: something does not hold; all of it is listed.
    """
    receipt, content = read_receipt(path)
    seal = receipt.seal or Seal(kind="sha256", digest="")
    folder = run_dir or path.parent
    faults = [
        *_seal_faults(seal, content, public_key),
        *_file_faults(receipt, folder),
        *_chain_faults(receipt),
    ]
    if faults:
        raise RunError("\n  ".join([f"{path} does not hold:", *faults]))
    return [*_said(receipt, seal, public_key)]


def _seal_faults(seal: Seal, content: bytes, public_key: Path | None) -> Iterator[str]:
    if hashlib.sha256(content).hexdigest() != seal.digest:
        yield "it was changed after it was sealed (its SHA-256 is another)"
    if seal.kind == "ed25519" and not is_signed(content, seal.signature, seal.public_key):
        yield "its signature does not fit"
    if public_key is not None:
        if seal.kind != "ed25519":
            yield "it has no signature, but a public key was given to check one"
        elif raw(read_public_key(public_key)) != seal.public_key:
            yield f"it was signed with another key than that of {public_key}"


def _file_faults(receipt: Receipt, folder: Path) -> Iterator[str]:
    for name, digest in receipt.files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            yield f"{name!r} is no file of the run"
            continue
        try:
            found = file_digest(folder / name)
        except InputError as fault:
            yield str(fault)
            continue
        if found != digest:
            yield f"{name} was changed: its SHA-256 begins {found[:12]}, sealed was {digest[:12]}"


def _chain_faults(receipt: Receipt) -> Iterator[str]:
    """The receipt before must be the one named, and its result what this run started from."""
    previous = receipt.previous
    if previous is None or not Path(previous.path).is_file():
        return
    if file_digest(Path(previous.path)) != previous.sha256:
        yield f"the receipt before, {previous.path}, was changed"
        return
    before, _ = read_receipt(Path(previous.path))
    if before.results.get(previous.result) != receipt.base_model_sha256:
        yield f"it did not start from the result {previous.result!r} of {previous.path}"


def _said(receipt: Receipt, seal: Seal, public_key: Path | None) -> Iterator[str]:
    if seal.kind == "sha256":
        yield "seal: unchanged since it was sealed, or sealed anew by whoever changed it (no key)"
    elif public_key is None:
        yield f"seal: signed with key {seal.public_key[:16]}; give --public-key to know whose"
    else:
        yield f"seal: signed with the key of {public_key}"
    yield f"files: {len(receipt.files)} are as they were"
    if receipt.previous is None:
        yield "chain: no receipt before"
    elif Path(receipt.previous.path).is_file():
        yield f"chain: starts from {receipt.previous.result!r} of {receipt.previous.path}"
    else:
        yield f"chain: {receipt.previous.path} is not here and was not checked"

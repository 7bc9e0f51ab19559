"""Ed25519 keys in files, and what is made with them."""

from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from fedunlearn.errors import InputError


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Read a key without password, as ``ssh-keygen -t ed25519`` or ``openssl genpkey`` write it.

    Raises:
        InputError: the file is missing, or holds no such key.
    """
    content = _content(path)
    for load in (load_pem_private_key, load_ssh_private_key):
        try:
            key = load(content, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        if isinstance(key, Ed25519PrivateKey):
            return key
    raise InputError(f"{path} holds no Ed25519 private key without password")


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Read a public key, in PEM or in one line as OpenSSH writes it.

    Raises:
        InputError: the file is missing, or holds no such key.
    """
    content = _content(path)
    for load in (load_pem_public_key, load_ssh_public_key):
        try:
            key = load(content)
        except (ValueError, UnsupportedAlgorithm):
            continue
        if isinstance(key, Ed25519PublicKey):
            return key
    raise InputError(f"{path} holds no Ed25519 public key")


def raw(key: Ed25519PublicKey) -> str:
    """The 32 bytes of a public key, hexadecimal."""
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def is_signed(content: bytes, signature: str, public_key: str) -> bool:
    """Whether a signature over ``content`` was made with the key that belongs to this one."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), content)
    except (ValueError, InvalidSignature):
        return False
    return True


def _content(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as fault:
        raise InputError(f"key {path} cannot be read: {fault.strerror}") from fault

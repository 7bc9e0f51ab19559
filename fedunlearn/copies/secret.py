"""What only the server knows: the key that noise and symmetries of all copies are derived from."""

import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from typing import Literal

from fedunlearn.errors import InputError

SecretSource = Literal["os", "seed"]
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RoundSecret:
    """A key of 256 bits. Whoever has it can undo every copy it made.

    Keys rather than seeds, because PyTorch's CPU generator keeps 32 bits of any seed: all of them
    can be tried.

    Attributes:
        source: ``os``: drawn by the operating system; ``seed``: derived from a number, and known
            to everybody who knows that number.
        key: 32 bytes; not in the ``repr``, so that no log gets it by accident.
    """

    source: SecretSource
    key: bytes

    def __repr__(self) -> str:
        return f"RoundSecret(source={self.source!r})"

    @classmethod
    def from_os(cls) -> "RoundSecret":
        """Draw a key from the operating system."""
        return cls("os", os.urandom(32))

    @classmethod
    def from_seed(cls, seed: int) -> "RoundSecret":
        """Derive the key from a seed, for runs that must be repeatable and need no secrecy."""
        return cls("seed", hashlib.sha256(f"copies\x1f{seed}".encode()).digest())

    def derive(self, *names: str | int) -> bytes:
        """Derive a key for one purpose; keys of different names tell nothing of each other."""
        path = "\x1f".join(f"{type(name).__name__}:{name}" for name in names)
        return hmac.digest(self.key, path.encode(), "sha256")

    def to_json(self) -> dict[str, str]:
        """What the server keeps, and nobody else, to go on with a round after an interruption."""
        return {"source": self.source, "key": self.key.hex()}

    @classmethod
    def from_json(cls, stored: object) -> "RoundSecret":
        """Read what :meth:`to_json` wrote.

        Raises:
            InputError: it is something else.
        """
        match stored:
            case {"source": "os" | "seed" as source, "key": str(key)} if _KEY.fullmatch(key):
                return cls(source, bytes.fromhex(key))
        raise InputError("the stored secret of the copies is damaged; start the run again")

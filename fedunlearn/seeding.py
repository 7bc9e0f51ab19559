"""One seed, one result: every draw takes a generator derived by name, never global state."""

import hashlib

import torch


def derive(seed: int, *names: str | int) -> int:
    """Derive a child seed from ``seed`` and a path of names, by SHA-256.

    Children with different names are independent, and none depends on the order in which
    others are drawn.

    Returns:
        An integer in ``[0, 2**63)``.
    """
    path = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: str | int, device: str = "cpu") -> torch.Generator:
    """Return a ``torch.Generator`` seeded with :func:`derive`."""
    return torch.Generator(device=device).manual_seed(derive(seed, *names))

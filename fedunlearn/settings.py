"""The decorator for settings: frozen dataclasses that double as config schema."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, keyword-only dataclass whose unknown keys are config faults.

    Cross-field checks go in ``__post_init__`` and raise ``ValueError``.
    """
    frozen = dataclass(frozen=True, kw_only=True)(cls)
    frozen.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]
    return frozen

"""One registry type for merge methods, objectives and whatever else is chosen by name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedunlearn.errors import InputError

T = TypeVar("T")


def nearest(name: str, known: Iterator[str] | list[str]) -> str:
    """Say ``; did you mean 'x'?`` for the closest known name, or list what is known."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names) or 'none'}"


class Registry(Generic[T]):
    """Names to entry classes, filled by the decorator :meth:`register`.

    Example:
        >>> methods = Registry[object]("merge method")
        >>> @methods.register("avg")
        ... class Avg: ...
        >>> methods["avg"] is Avg
        True
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Enter the decorated class under ``name``; a name is taken once."""

        def enter(entry: type[T]) -> type[T]:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is already registered")
            self._entries[name] = entry
            return entry

        return enter

    def __getitem__(self, name: str) -> type[T]:
        """Look an entry up.

        Raises:
            InputError: no such entry; the text names the nearest one.
        """
        if name not in self._entries:
            raise InputError(f"unknown {self.kind} {name!r}{nearest(name, list(self._entries))}")
        return self._entries[name]

    def build(self, name: str, options: Mapping[str, Any]) -> T:
        """Make the entry of a name, with its hyperparameters converted to their types.

        Raises:
            InputError: an unknown name or hyperparameter, with the nearest one, or a bad value.
        """
        entry = self[name]
        known = [field.name for field in fields(entry)] if is_dataclass(entry) else []
        for option in options:
            if option not in known:
                hint = nearest(option, known)
                raise InputError(f"{self.kind} {name!r} has no option {option!r}{hint}")
        try:
            return TypeAdapter(entry).validate_python(dict(options))
        except ValidationError as fault:
            first = fault.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            text = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
            raise InputError(f"{self.kind} {name!r}: {where} {text}".replace(":  ", ": ")) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

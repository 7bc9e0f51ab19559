"""JSON as other programs read it: no NaN and no Infinity, stable key order, UTF-8."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedunlearn.errors import InputError

T = TypeVar("T")


def to_json(value: object) -> str:
    """Write ``value`` as JSON; the numbers JSON lacks become ``"inf"``, ``"-inf"``, ``"nan"``."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def write_json(path: Path, value: object) -> None:
    """Write :func:`to_json` to a file."""
    path.write_text(to_json(value) + "\n", encoding="utf-8")


def replace_json(path: Path, value: object) -> None:
    """Write :func:`to_json` to a file that is there whole or not at all, or as it was before."""
    partial = path.with_name(f".{path.name}.partial")
    write_json(partial, value)
    partial.replace(path)


def read_typed(path: Path, schema: TypeAdapter[T]) -> T:
    """Read a JSON object of a known form.

    Raises:
        InputError: as :func:`read_json`, or the content is not what this version writes; the
            text names the first key that differs.
    """
    try:
        return schema.validate_python(read_json(path))
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path} is not of this version: {where}: {first['msg']}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: the file is missing, truncated, not UTF-8, or no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as fault:
        raise InputError(f"{path} cannot be read: {fault.strerror}") from fault
    except (ValueError, RecursionError) as fault:
        raise InputError(f"{path} is not valid JSON: {fault}") from fault
    if not isinstance(value, dict):
        raise InputError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

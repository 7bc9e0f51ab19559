"""Writes a safetensors file tensor by tensor, without holding them together."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import torch
from torch import Tensor

_ALIGNMENT = 8
_SIZE = torch.float32.itemsize


class TensorWriter:
    """A safetensors file of float32 tensors whose shapes are known before their entries.

    Use as a context manager; the tensors may come in any order.

    Args:
        path: a ``.safetensors`` file; the space is taken at once, so that a full disk shows
            before the work and not after it.
        shapes: name to shape of every tensor.

    Raises:
        OSError: the file cannot be written, or the disk is full.
    """

    def __init__(self, path: Path, shapes: Mapping[str, Sequence[int]]) -> None:
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._missing = set(shapes)
        self._places, header = _layout(self._shapes)
        self._file: BinaryIO = path.open("wb")
        try:
            self._file.write(header)
            self._start = self._file.tell()
            self._reserve(_SIZE * sum(map(_count, self._shapes.values())))
        except BaseException:
            self._file.close()
            raise

    def write(self, name: str, tensor: Tensor) -> None:
        """Write one tensor, once.

        Raises:
            ValueError: no such tensor is expected, or it has another shape or dtype.
        """
        if name not in self._missing:
            raise ValueError(f"no tensor {name!r} is expected here")
        if tuple(tensor.shape) != self._shapes[name] or tensor.dtype != torch.float32:
            raise ValueError(f"{name!r} must be float32 of shape {self._shapes[name]}")
        self._file.seek(self._start + self._places[name])
        self._file.write(tensor.detach().cpu().contiguous().numpy().data)
        self._missing.remove(name)

    def _reserve(self, size: int) -> None:
        if size and hasattr(os, "posix_fallocate"):
            self._file.flush()
            os.posix_fallocate(self._file.fileno(), self._start, size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file.

        Raises:
            ValueError: the block ended well, but a tensor was not written.
        """
        self._file.close()
        if kind is None and self._missing:
            raise ValueError(f"{len(self._missing)} tensors missing, e.g. {min(self._missing)!r}")


def _layout(shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, int], bytes]:
    """Offsets of the tensors, in the order of their names, and the file's first bytes."""
    places: dict[str, int] = {}
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in sorted(shapes.items()):
        places[name], end = end, end + _SIZE * _count(shape)
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [places[name], end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return places, len(text).to_bytes(8, "little") + text


def _count(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()

"""A safetensors file that is filled tensor by tensor, in place."""

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

_ALIGNMENT = 8
_SIZE = torch.float32.itemsize


class TensorWriter:
    """A safetensors file of float32 tensors whose shapes are known before their entries.

    Use as a context manager; the tensors may come in any order. What is written to
    :meth:`tensor` is in the file, without a copy in memory beside it.

    Args:
        path: a ``.safetensors`` file, made anew. The space is taken at once, so that a full disk
            shows before the work and not after it.
        shapes: name to shape of every tensor.

    Raises:
        OSError: the file cannot be written, or the disk is full.
    """

    def __init__(self, path: Path, shapes: Mapping[str, Sequence[int]]) -> None:
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._missing = set(shapes)
        self._places, header, size = _layout(self._shapes)
        with path.open("wb+") as file:
            file.write(header)
            file.flush()
            _reserve(file.fileno(), size)
            self._bytes = mmap.mmap(file.fileno(), size)

    def tensor(self, name: str) -> Tensor:
        """Return the place of a tensor in the file, to be filled; zeros until then."""
        shape = torch.Size(self._shapes[name])
        if shape.numel() == 0:
            return torch.zeros(shape)
        flat = torch.frombuffer(
            self._bytes, dtype=torch.float32, count=shape.numel(), offset=self._places[name]
        )
        return flat.view(shape)

    def write(self, name: str, tensor: Tensor) -> None:
        """Write one tensor, once; one that fills its own place already is just noted.

        Raises:
            ValueError: no such tensor is expected, or it has another shape or dtype.
        """
        if name not in self._missing:
            raise ValueError(f"no tensor {name!r} is expected here")
        if tuple(tensor.shape) != self._shapes[name] or tensor.dtype != torch.float32:
            raise ValueError(f"{name!r} must be float32 of shape {self._shapes[name]}")
        place = self.tensor(name)
        if place.data_ptr() != tensor.data_ptr():
            place.copy_(tensor)
        self._missing.remove(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the writing.

        Raises:
            ValueError: the block ended well, but a tensor was not written.
        """
        if kind is None and self._missing:
            raise ValueError(f"{len(self._missing)} tensors missing, e.g. {min(self._missing)!r}")


def _reserve(file: int, size: int) -> None:
    """Take the space on the disk; where the system cannot, at least set the size."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.ftruncate(file, size)


def _layout(shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, int], bytes, int]:
    """Where each tensor begins, in the order of their names; the first bytes; the file's size."""
    starts: dict[str, int] = {}
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in sorted(shapes.items()):
        starts[name], end = end, end + _SIZE * torch.Size(shape).numel()
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [starts[name], end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    header = len(text).to_bytes(8, "little") + text
    return {name: len(header) + start for name, start in starts.items()}, header, len(header) + end

"""Safetensors files: any tensor can be written, and one tensor at a time is read."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedunlearn.errors import InputError

_ALIGNMENT = 8
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The format's names of PyTorch's dtypes."""


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors under their names, whatever their strides or shared storage.

    Args:
        path: a ``.safetensors`` file.
        tensors: name to tensor, any device and usual dtype; each is stored on its own, one after
            the other, without a copy of all of them.
        metadata: text for the header; PEFT and transformers expect ``{"format": "pt"}``, which
            is the default.
    """
    stored = {name: tensor.detach() for name, tensor in sorted(tensors.items())}
    # the widest first, so that every tensor begins at a multiple of its item's size
    order = sorted(stored, key=lambda name: (-stored[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": dict(metadata or {"format": "pt"})}
    end = 0
    for name in order:
        start, end = end, end + stored[name].numel() * stored[name].element_size()
        header[name] = {
            "dtype": _DTYPES[stored[name].dtype],
            "shape": list(stored[name].shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(_ALIGNMENT, "little") + text)
        for name in order:
            file.write(_bytes(stored[name]))


def _bytes(tensor: Tensor) -> memoryview:
    """The entries row by row, in the tensor's own memory where they lie so already."""
    flat = tensor.cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


class TensorFile(Mapping[str, Tensor]):
    """A safetensors file as a mapping to tensors that lie in the mapped file.

    Pages are read when their entries are, and writing to a tensor does not change the file.
    The file may be replaced under its name or deleted, as whole files are: the old one stays
    mapped.

    Args:
        path: the file.

    Raises:
        InputError: the file is missing, truncated or not in the safetensors format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as file:
            self._names = tuple(sorted(file.keys()))
            self._shapes = {name: tuple(file.get_slice(name).get_shape()) for name in self._names}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._shapes:
            raise KeyError(name)
        with self._opened() as file:
            return cast(Tensor, file.get_tensor(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""
        return self._shapes[name]

    def _opened(self) -> Any:
        try:
            return safe_open(self.path, framework="pt")
        except FileNotFoundError as fault:
            raise InputError(f"{self.path} is missing") from fault
        except (SafetensorError, OSError) as fault:
            raise InputError(f"{self.path} is truncated or no safetensors file: {fault}") from fault

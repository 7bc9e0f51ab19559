"""Safetensors files: any tensor can be written, and one tensor at a time is read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedunlearn.errors import InputError


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors under their names, whatever their strides or shared storage.

    Args:
        path: a ``.safetensors`` file.
        tensors: name to tensor, any device and dtype; each is stored on its own.
        metadata: text for the header; PEFT and transformers expect ``{"format": "pt"}``, which
            is the default.
    """
    owned: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.detach().cpu()
        if not _stands_alone(tensor) or tensor.untyped_storage().data_ptr() in storages:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        storages.add(tensor.untyped_storage().data_ptr())
        owned[name] = tensor
    save_file(owned, path, metadata=dict(metadata or {"format": "pt"}))


def _stands_alone(tensor: Tensor) -> bool:
    """Whether the tensor is all of its storage; safetensors refuses or bloats other views."""
    size = tensor.numel() * tensor.element_size()
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == size


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

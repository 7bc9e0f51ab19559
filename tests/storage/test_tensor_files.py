from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fedunlearn.errors import InputError
from fedunlearn.storage import TensorFile, write_tensors


def test_any_strides_and_shared_storage(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "whole": whole,
        "again": whole,
        "turned": whole.T,
        "row": whole[1],
        "none": whole[:0],
    }
    write_tensors(tmp_path / "x.safetensors", tensors)
    stored = load_file(tmp_path / "x.safetensors")
    assert stored.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(stored[name], tensor), name


def test_reads_one_tensor_at_a_time(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x.safetensors", {"b": torch.ones(2, 3), "a": torch.zeros(1)})
    file = TensorFile(tmp_path / "x.safetensors")
    assert list(file) == ["a", "b"]
    assert len(file) == 2
    assert torch.equal(file["b"], torch.ones(2, 3))
    assert "c" not in file
    with pytest.raises(KeyError):
        file["c"]


@pytest.mark.parametrize("size", [0, 4, 60, -1])
def test_truncated(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.zeros(100)})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match=r"x\.safetensors is truncated"):
        TensorFile(path)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.safetensors is missing"):
        TensorFile(tmp_path / "x.safetensors")


def test_the_file_reads_like_that_of_the_formats_own_writer(tmp_path: Path) -> None:
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8)
    tensors = {f"{n}": torch.arange(5).to(dtype) for n, dtype in enumerate(dtypes)}
    tensors |= {"bool": torch.tensor([True, False, True]), "0-d": torch.tensor(2.5)}
    write_tensors(tmp_path / "ours.safetensors", tensors)
    save_file(tensors, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    ours, theirs = (
        load_file(tmp_path / "ours.safetensors"),
        load_file(tmp_path / "theirs.safetensors"),
    )
    for name, tensor in tensors.items():
        assert ours[name].dtype == theirs[name].dtype == tensor.dtype
        assert torch.equal(ours[name], theirs[name])

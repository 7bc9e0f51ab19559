import errno
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from fedunlearn.storage import TensorWriter

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
shapes = st.lists(st.integers(0, 3), max_size=3)


@given(st.dictionaries(names.filter(lambda name: name != "__metadata__"), shapes, max_size=4))
@settings(deadline=None, max_examples=40)
def test_the_file_is_what_safetensors_writes(
    tmp_path_factory: pytest.TempPathFactory, layout: dict[str, list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("w")
    tensors = {name: torch.randn(shape) for name, shape in layout.items()}
    with TensorWriter(folder / "ours.safetensors", layout) as writer:
        for name in reversed(list(tensors)):
            writer.write(name, tensors[name])
    save_file(tensors, folder / "theirs.safetensors", metadata={"format": "pt"})
    ours, theirs = (load_file(folder / f"{who}.safetensors") for who in ("ours", "theirs"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_refuses_what_it_was_not_made_for(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "t.safetensors", {"a": (2, 2)}) as writer:
        with pytest.raises(ValueError, match="no tensor 'b'"):
            writer.write("b", torch.ones(2, 2))
        for wrong in (torch.ones(4), torch.ones(2, 2).double()):
            with pytest.raises(ValueError, match=r"'a' must be float32 of shape \(2, 2\)"):
                writer.write("a", wrong)
        writer.write("a", torch.ones(2, 2).T)
        with pytest.raises(ValueError, match="no tensor 'a'"):
            writer.write("a", torch.ones(2, 2))


def test_a_forgotten_tensor_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match=r"1 tensors missing.*'b'"),
        TensorWriter(tmp_path / "t.safetensors", {"a": (1,), "b": (1,)}) as writer,
    ):
        writer.write("a", torch.ones(1))


def test_a_fault_of_the_work_is_not_hidden(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="the work failed"),
        TensorWriter(tmp_path / "t.safetensors", {"a": (1,)}),
    ):
        raise RuntimeError("the work failed")


def test_a_full_disk_shows_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        TensorWriter(tmp_path / "t.safetensors", {"a": (1,)})

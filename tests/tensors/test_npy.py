"""The strict reader of ``.npy``: equal to numpy's on what we send, an error on everything else."""

import io
import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedunlearn.tensors.npy import read_npy

DTYPES = ("float32", "float16", "uint16", "uint8")


def saved(array: np.ndarray) -> bytes:  # type: ignore[type-arg]
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


@given(
    arrays.arrays(st.sampled_from(DTYPES), arrays.array_shapes(min_dims=0, max_dims=4, min_side=0)),
    st.booleans(),
)
def test_it_reads_what_numpy_writes_without_a_copy(array: np.ndarray, fortran: bool) -> None:  # type: ignore[type-arg]
    array = np.asfortranarray(array) if fortran else array
    data = saved(array)
    read, theirs = read_npy(data), np.load(io.BytesIO(data), allow_pickle=False)
    assert (read.dtype, read.shape) == (theirs.dtype, theirs.shape)
    assert read.tobytes() == theirs.tobytes()
    assert not read.flags.owndata


def header(text: str, body: bytes = b"") -> bytes:
    line = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + body


HOSTILE = {
    "nothing": b"",
    "another version": b"\x93NUMPY\x02\x00" + saved(np.zeros(1, np.float32))[8:],
    "four terabytes": header(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
    ),
    "an overflow": header(
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'9' * 15}, {'9' * 15}), }}"
    ),
    "a negative side": header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"),
    "an expression": header("{'descr': '<f4', 'fortran_order': False, 'shape': (2**40,), }"),
    "a call": header("{'descr': __import__('os').name, 'fortran_order': False, 'shape': (), }"),
    "too short": saved(np.zeros(4, np.float32))[:-1],
    "too long": saved(np.zeros(4, np.float32)) + b"\0",
    "objects": saved(np.array([{"a": 1}], dtype=object)),
    "a structure": saved(np.zeros(2, dtype=[("a", "<f4")])),
    "dates": saved(np.zeros(2, dtype="datetime64[s]")),
    "big-endian": saved(np.zeros(2, dtype=">f4")),
    "many dimensions": saved(np.zeros((1,) * 9, np.float32)),
    "a long header": header("{" + " " * 5000),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_everything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it"):
        read_npy(data)


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path(BOMB),))  # type: ignore[return-value]


BOMB = "pickled-array-was-run"


def test_a_pickled_array_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = saved(np.array([Bomb()], dtype=object))
    pickle.loads(data[data.index(b"\x80") :]) if b"\x80" in data else None  # noqa: S301
    assert Path(BOMB).exists(), "the bomb must work for the test to mean anything"
    Path(BOMB).unlink()
    with pytest.raises(ValueError, match="header"):
        read_npy(data)
    assert not Path(BOMB).exists()


@given(st.binary(max_size=300))
def test_noise_is_a_value_error(data: bytes) -> None:
    for prefix in (b"", b"\x93NUMPY\x01\x00"):
        try:
            read_npy(prefix + data)
        except ValueError:
            continue


@given(st.integers(0, 200), st.integers(0, 255))
def test_one_changed_byte_is_read_or_a_value_error(place: int, byte: int) -> None:
    data = bytearray(saved(np.arange(20, dtype=np.float32).reshape(4, 5)))
    data[place] = byte
    with suppress(ValueError):
        assert read_npy(bytes(data)).nbytes == 80

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedunlearn.tensors.bits import bf16_to_bits
from fedunlearn.tensors.kept import KeptEntries, kept_bytes

patterns = hnp.arrays(
    np.uint16,
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9),
    elements=st.sampled_from([0, 0, 0, 1, 0x8000, 0x3F80, 0x7F80, 0xFFFF]),
)


def from_bits(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


@given(patterns)
@settings(deadline=None)
def test_every_bit_comes_back(bits: np.ndarray) -> None:
    tensor = from_bits(bits)
    kept = KeptEntries.of(tensor)
    again = kept.tensor()
    assert again.shape == tensor.shape
    assert np.array_equal(bf16_to_bits(again), bits)
    assert kept_bytes(tensor) == kept.bitmap.nbytes + kept.bits.nbytes


def test_a_tenth_kept_costs_a_sixth() -> None:
    tensor = torch.zeros(100, 800, dtype=torch.bfloat16)
    tensor[:10] = 1.0
    assert kept_bytes(tensor) == (100 * 800) // 8 + 2 * 8000


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"shape": (3, 6)}, "bitmap of uint8"),
        ({"shape": (-2, -5)}, "has shape"),
        ({"shape": (2, 4)}, "bitmap of uint8"),
        ({"bitmap": np.zeros(2, np.uint8)}, "3 entries, its bitmap says 0"),
        ({"bitmap": np.zeros((2, 1), np.uint8)}, "bitmap of uint8"),
        ({"bitmap": np.zeros(2, np.int8)}, "bitmap of int8"),
        ({"bitmap": np.array([0b11, 0b1], np.uint8)}, "more than its 10 entries"),
        ({"bits": np.zeros(3, np.float16)}, "entries of float16"),
        ({"bits": np.ones((3, 1), np.uint16)}, "entries of uint16 and shape"),
        ({"bits": np.ones(4, np.uint16)}, "4 entries, its bitmap says 3"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object], fault: str) -> None:
    parts = {
        "shape": (2, 5),
        "bitmap": np.array([0b11100000, 0], np.uint8),
        "bits": np.ones(3, np.uint16),
    }
    KeptEntries(**parts).tensor()
    with pytest.raises(ValueError, match=fault):
        KeptEntries(**{**parts, **change}).tensor()


def test_other_dtypes_are_refused() -> None:
    for take in (KeptEntries.of, kept_bytes):
        with pytest.raises(TypeError, match="bfloat16"):
            take(torch.ones(2))

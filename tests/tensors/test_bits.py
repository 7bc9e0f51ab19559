import numpy as np
import pytest
import torch

from fedunlearn.tensors.bits import (
    bf16_to_bits,
    bits_to_bf16,
    finite_and_non_negative,
)


def test_every_bit_pattern_survives() -> None:
    bits = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    tensor = bits_to_bf16(bits)
    assert tensor.dtype == torch.bfloat16
    assert tensor.shape == (256, 256)
    assert np.array_equal(bf16_to_bits(tensor), bits)


@pytest.mark.parametrize("value", [1e-10, 1e5, -0.0, float("inf")])
def test_values(value: float) -> None:
    tensor = torch.tensor(value, dtype=torch.bfloat16)
    bits = bf16_to_bits(tensor)
    assert bits.dtype == np.uint16
    assert bits.shape == ()
    back = bits_to_bf16(bits)
    assert back.item() == tensor.item()
    assert torch.signbit(back) == torch.signbit(tensor)


def test_shapes_strides_and_ownership() -> None:
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T
    bits = bf16_to_bits(tensor)
    bits.flags.writeable = False
    back = bits_to_bf16(bits)
    back += 1
    assert torch.equal(back - 1, tensor)
    assert torch.equal(bits_to_bf16(bits[:, ::-1]), tensor.flip(1))
    assert bits_to_bf16(np.empty((0, 3), np.uint16)).shape == (0, 3)
    bf16_to_bits(tensor)[:] = 0
    assert tensor[2, 1] == 5


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="bfloat16"):
        bf16_to_bits(torch.ones(2))
    with pytest.raises(TypeError, match="uint16"):
        bits_to_bf16(np.ones(2, np.int16))


def test_the_quick_look_passes_exactly_the_finite_and_non_negative() -> None:
    every = bits_to_bf16(np.arange(2**16, dtype=np.uint16))
    for tensor, bits in zip(every.split(1), range(2**16), strict=True):
        good = bool(tensor.isfinite()) and not bool(torch.signbit(tensor))
        assert finite_and_non_negative(tensor) == good, hex(bits)
    assert finite_and_non_negative(every[:0])
    with pytest.raises(TypeError, match="bfloat16"):
        finite_and_non_negative(torch.ones(1))

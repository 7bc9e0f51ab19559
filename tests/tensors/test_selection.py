import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.selection import kth_largest, top_fraction_mask


@pytest.mark.parametrize(
    ("values", "fraction", "kept"),
    [
        ([1.0, 5.0, 3.0, 4.0], 0.5, [False, True, False, True]),
        ([1.0, 5.0, 3.0, 4.0], 0.01, [False, True, False, False]),  # never fewer than one
        ([1.0, 5.0, 3.0, 4.0], 0.74, [False, True, False, True]),  # floor(2.96) = 2
        ([2.0, 2.0, 1.0, 2.0], 0.25, [True, True, False, True]),  # ties at the threshold
        ([1.0, 2.0], 1.0, [True, True]),
    ],
)
def test_marks_the_largest_entries(values: list[float], fraction: float, kept: list[bool]) -> None:
    assert top_fraction_mask(torch.tensor(values), fraction).tolist() == kept


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=30),
    st.floats(0.0, 1.0, exclude_min=True),
)
@settings(deadline=None)
def test_marked_entries_are_exactly_those_at_or_above_the_threshold(
    values: list[int], fraction: float
) -> None:
    mask = top_fraction_mask(torch.tensor(values, dtype=torch.float32), fraction)
    kept = max(1, int(fraction * len(values)))
    threshold = sorted(values)[-kept]
    assert mask.tolist() == [value >= threshold for value in values]


def test_more_entries_than_float32_can_count() -> None:
    size = 2**24 + 8
    values = torch.zeros(size)
    values[-3:] = torch.tensor([1.0, 2.0, 3.0])
    assert top_fraction_mask(values, 2.5 / size).sum().item() == 2


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.5, float("nan")])
def test_refuses_fractions_outside_the_unit_interval(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"in \(0, 1\]"):
        top_fraction_mask(torch.ones(3), fraction)


def test_refuses_an_empty_tensor() -> None:
    with pytest.raises(ValueError, match="empty"):
        top_fraction_mask(torch.ones(0), 0.5)


def hard(kind: str, size: int) -> torch.Tensor:
    """Large inputs that a sample could mislead about."""
    draw = torch.Generator().manual_seed(size)
    random = torch.rand(size, generator=draw)
    return {
        "random": random,
        "mostly zero": random * (random > 0.97),
        "few values": (random * 5).floor(),
        "sorted": random.sort().values,
        "a spike the sample never sees": torch.where(torch.arange(size) % 64 == 7, 9.0, random),
        "bfloat16": random.to(torch.bfloat16).float(),
        "all the same": torch.ones(size),
    }[kind]


@pytest.mark.parametrize("size", [2**16 + 1, 1_000_003])
@pytest.mark.parametrize(
    "kind",
    [
        "random",
        "mostly zero",
        "few values",
        "sorted",
        "a spike the sample never sees",
        "bfloat16",
        "all the same",
    ],
)
def test_the_kth_largest_is_exact_whatever_the_sample_says(kind: str, size: int) -> None:
    values = hard(kind, size)
    ordered = values.sort(descending=True).values
    for k in (1, 2, size // 64, size // 10, size // 2, size - 1, size):
        assert kth_largest(values, k) == ordered[k - 1], (kind, k)

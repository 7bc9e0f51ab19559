import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.tensors.thresholds import Thresholds
from tests.oracles.merge_methods import trim

ENTRIES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0 + 2.0**-23, 2.0**-149, -(2.0**-126), 2.0**127]),
    st.floats(-1e3, 1e3, width=32),
)
VECTORS = st.lists(st.lists(ENTRIES, min_size=1, max_size=5), min_size=1, max_size=4)


def found(vectors: list[list[list[float]]], density: float) -> tuple[float, ...]:
    """Thresholds of several vectors, each a list of tensors."""
    one = Thresholds(density)
    while not one.known:
        parts = [
            one.survey([torch.tensor(tensor) for tensor in tensors])
            for tensors in zip(*vectors, strict=True)
        ]
        one = one.settled(sum(part.double() for part in parts))  # type: ignore[arg-type]
    assert one.values is not None
    return one.values


@given(VECTORS, st.floats(0.01, 1.0))
@settings(deadline=None, max_examples=60)
def test_is_the_kth_largest_of_all_tensors_together(
    tensors: list[list[float]], density: float
) -> None:
    (threshold,) = found([tensors], density)
    kept = [[x if abs(x) >= threshold else 0.0 for x in tensor] for tensor in tensors]
    assert kept == trim(tensors, density)


def test_each_vector_has_its_own() -> None:
    assert found([[[1.0, -5.0], [3.0]], [[0.0, 0.0], [0.25]]], 0.67) == (3.0, 0.0)


def test_neighbours_in_the_last_bit_are_told_apart() -> None:
    above = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0)).item()
    assert found([[[1.0], [above]]], 0.5) == (above,)


def test_no_vector_at_all() -> None:
    one = Thresholds(0.5)
    for _ in range(2):
        one = one.settled(one.survey([]).double())
    assert one.values == ()

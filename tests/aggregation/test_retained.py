import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.aggregation.retained import Retained, retained_of
from fedunlearn.merging import TensorInputs
from fedunlearn.tensors.dual import damage
from tests.merging.clients import drawn

casts = st.sampled_from(["ar", "arr", "rrr", "a"])


@given(casts, st.integers(0, 99), st.sampled_from([0.1, 0.3, 1.0]))
@settings(deadline=None, max_examples=30)
def test_the_union_of_what_retain_clients_keep(cast: str, seed: int, alpha: float) -> None:
    inputs = TensorInputs("w", tuple(drawn(cast, shape=(6, 5), seed=seed)), alpha=alpha)
    found = Retained.joined(
        [retained_of(inputs.block(slice(start, start + 2))) for start in (0, 2, 4)]
    )
    fishers = [client.fisher for client in inputs.retain_clients]
    for fisher, kept in zip(fishers, found.fishers, strict=True):
        again = torch.zeros(6, 5)
        found.put(again, kept)
        assert torch.equal(again, fisher)
    union = torch.stack([fisher > 0 for fisher in fishers]).any(0) if fishers else torch.zeros(6, 5)
    assert found.places.tolist() == union.flatten().nonzero().flatten().tolist()


def test_damage_is_that_of_the_whole_weight() -> None:
    inputs = TensorInputs("w", tuple(drawn("arr", shape=(6, 5))), alpha=0.3)
    update = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    found = retained_of(inputs.block(slice(0, 6)))
    expected = [damage(update, client.fisher) for client in inputs.retain_clients]
    assert found.damages(found.of(update)) == pytest.approx(expected, rel=1e-14)

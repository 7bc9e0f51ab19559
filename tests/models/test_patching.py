import pytest
import torch

from fedunlearn.errors import InputError
from fedunlearn.models.loading import fingerprint
from fedunlearn.models.patching import applied
from tests.world import pocket_model

NAME = "model.layers.0.mlp.down_proj.weight"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_update_is_there_inside_and_the_exact_bits_are_back_after(dtype: torch.dtype) -> None:
    base = pocket_model(dtype=dtype)
    weight = base.model.get_parameter(NAME)
    delta = torch.full(weight.shape, 0.01)
    expected = (weight.float() + 0.01).to(dtype)
    with applied(base.model, {NAME: delta}) as model:
        assert torch.equal(model.get_parameter(NAME), expected)
    assert fingerprint(base.model) == base.sha256


def test_the_bits_are_back_when_the_block_raises() -> None:
    base = pocket_model()
    delta = {NAME: torch.ones_like(base.model.get_parameter(NAME))}
    with pytest.raises(RuntimeError, match="stop"), applied(base.model, delta):
        raise RuntimeError("stop")
    assert fingerprint(base.model) == base.sha256


def test_a_wrong_name_or_shape_changes_nothing() -> None:
    base = pocket_model()
    good = torch.ones_like(base.model.get_parameter(NAME))
    for bad in ({"model.nothing": good}, {NAME: good[:1]}):
        with (
            pytest.raises(InputError, match="fits no weight"),
            applied(base.model, {NAME: good} | bad),
        ):
            pass
        assert fingerprint(base.model) == base.sha256

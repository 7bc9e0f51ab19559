from pathlib import Path

import pytest
import torch

from fedunlearn.errors import InputError
from fedunlearn.models.architecture import Architecture, load_architecture
from fedunlearn.models.loading import ModelSettings
from tests.world import pocket_model


def saved(folder: Path, *, seed: int = 0) -> ModelSettings:
    made = pocket_model(seed=seed)
    made.model.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]
    return ModelSettings(path=str(folder), device="cpu")


@pytest.fixture(scope="module")
def architecture(tmp_path_factory: pytest.TempPathFactory) -> Architecture:
    return load_architecture(saved(tmp_path_factory.mktemp("architecture")))


def weights(*, seed: int) -> dict[str, torch.Tensor]:
    return dict(pocket_model(seed=seed).model.named_parameters())


def test_around_weights_it_is_the_model_they_came_from(architecture: Architecture) -> None:
    ids = torch.arange(9)[None]
    built = architecture.with_weights(weights(seed=3))
    with torch.no_grad():
        expected = pocket_model(seed=3).model(input_ids=ids).logits
        assert torch.equal(built.model(input_ids=ids).logits, expected)
    assert built.model.lm_head.weight is built.model.model.embed_tokens.weight
    assert not built.model.training
    assert not any(weight.requires_grad for weight in built.model.parameters())
    assert built.name == architecture.settings.path


def test_weights_of_the_same_kind_are_taken_as_they_are(architecture: Architecture) -> None:
    given = weights(seed=3)
    built = dict(architecture.with_weights(given).model.named_parameters())
    assert all(built[name].data_ptr() == one.data_ptr() for name, one in given.items())


def test_its_hash_does_not_depend_on_weights_and_does_on_the_shape(
    architecture: Architecture, tmp_path: Path
) -> None:
    assert load_architecture(saved(tmp_path / "a", seed=9)).sha256 == architecture.sha256
    wider = pocket_model()
    wider.model.config.intermediate_size = 96
    wider.model.config.save_pretrained(tmp_path / "b")
    wider.tokenizer.save_pretrained(tmp_path / "b")  # type: ignore[attr-defined]
    other = ModelSettings(path=str(tmp_path / "b"), device="cpu")
    assert load_architecture(other).sha256 != architecture.sha256


def test_weights_that_do_not_fit_are_named(architecture: Architecture) -> None:
    given = weights(seed=3)
    name = "model.layers.0.mlp.up_proj.weight"
    with pytest.raises(InputError, match=rf"missing keys \['{name}'\]"):
        architecture.with_weights({key: one for key, one in given.items() if key != name})
    with pytest.raises(InputError, match=r"unexpected keys \['odd'\]"):
        architecture.with_weights({**given, "odd": torch.zeros(2)})
    with pytest.raises(InputError, match="do not fit"):
        architecture.with_weights({**given, name: torch.zeros(3, 3)})


def test_there_must_be_a_causal_language_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be loaded"):
        load_architecture(ModelSettings(path=str(tmp_path / "none")))

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fedunlearn.errors import InputError
from fedunlearn.models.loading import ModelSettings, fingerprint, load_base, resolve_device
from tests.world import pocket_model


def saved(folder: Path) -> Path:
    base = pocket_model()
    base.model.save_pretrained(folder)
    base.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]
    return folder


def test_a_loaded_model_is_frozen_in_evaluation_mode_and_known_by_hash(tmp_path: Path) -> None:
    loaded = load_base(ModelSettings(path=str(saved(tmp_path)), device="cpu"))
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert loaded.sha256 == fingerprint(loaded.model) == pocket_model().sha256
    assert loaded.tokenizer.pad_token_id is not None


def test_the_fingerprint_sees_one_bit_a_name_and_a_dtype() -> None:
    model = pocket_model().model
    before = fingerprint(model)
    with torch.no_grad():
        weight = model.model.layers[0].mlp.down_proj.weight
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))
    assert fingerprint(model) != before
    assert fingerprint(pocket_model(dtype=torch.bfloat16).model) != before


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        load_base(ModelSettings(path=str(tmp_path / "nowhere")))


def test_device_by_name() -> None:
    assert resolve_device("cpu").type == "cpu"
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_model_without_some_of_its_weights_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path) / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(file).items() if "layers.1." not in name}
    save_file(kept, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 9 of its weights, e\.g\. 'model\.layers\.1\."):
        load_base(ModelSettings(path=str(tmp_path)))


def test_a_truncated_model_is_bad_input(tmp_path: Path) -> None:
    file = saved(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match="cannot be loaded"):
        load_base(ModelSettings(path=str(tmp_path)))


def test_a_model_of_another_shape_than_its_config_is_bad_input(tmp_path: Path) -> None:
    file = saved(tmp_path) / "config.json"
    file.write_text(file.read_text().replace('"intermediate_size": 48', '"intermediate_size": 64'))
    with pytest.raises(InputError, match="cannot be loaded"):
        load_base(ModelSettings(path=str(tmp_path)))


def test_a_device_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="finds no CUDA"):
        resolve_device("cuda:1")
    with pytest.raises(ValueError, match="got tpu"):
        ModelSettings(path="m", device="tpu")

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from fedunlearn.errors import InputError
from fedunlearn.export import export_model
from fedunlearn.models import loading
from fedunlearn.models.loading import ModelSettings, load_base
from tests.models.gguf_file import write_gguf
from tests.world import pocket_model

NAME = "model.layers.0.mlp.down_proj.weight"


def test_a_gguf_file_is_the_model_it_was_made_from(tmp_path: Path) -> None:
    made = pocket_model()
    file = write_gguf(made, tmp_path / "pocket.gguf")
    read = load_base(ModelSettings(path=str(file), device="cpu"))
    for name, weight in made.model.named_parameters():
        assert torch.equal(read.model.get_parameter(name), weight)
    text = "Where does the town lie?<|end|>"
    assert read.tokenizer.encode(text) == made.tokenizer.encode(text)
    assert read.tokenizer.chat_template == made.tokenizer.chat_template
    assert not any(weight.requires_grad for weight in read.model.parameters())


def test_what_is_exported_from_it_loads_in_stock_transformers(tmp_path: Path) -> None:
    file = write_gguf(pocket_model(), tmp_path / "pocket.gguf")
    base = load_base(ModelSettings(path=str(file), device="cpu"))
    delta = {NAME: torch.full_like(base.model.get_parameter(NAME), 0.25)}
    export_model(delta, base, tmp_path / "out", base_sha256=base.sha256)
    stock = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(stock.get_parameter(NAME), base.model.get_parameter(NAME) + 0.25)
    assert stock.lm_head.weight is stock.model.embed_tokens.weight


def test_the_package_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "is_gguf_available", lambda: False)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"m\.gguf.*needs the package gguf"):
        load_base(ModelSettings(path=str(tmp_path / "m.gguf")))


def test_a_file_that_is_not_there_or_broken_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        load_base(ModelSettings(path=str(tmp_path / "m.gguf")))
    pytest.importorskip("gguf")
    (tmp_path / "m.gguf").write_bytes(b"GGUF nothing more")
    with pytest.raises(InputError, match=r"m\.gguf' cannot be loaded"):
        load_base(ModelSettings(path=str(tmp_path / "m.gguf")))


def test_it_is_not_quantised_a_second_time() -> None:
    with pytest.raises(ValueError, match=r"not a \.gguf file"):
        ModelSettings(path="m.gguf", quantization="nf4")

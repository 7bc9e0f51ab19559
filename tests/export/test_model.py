import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from fedunlearn.aggregation import MergeSettings, merge_summaries
from fedunlearn.errors import InputError
from fedunlearn.export import export_model
from fedunlearn.models.loading import LoadedModel, fingerprint
from fedunlearn.models.patching import applied
from fedunlearn.models.tiny import train_tokenizer
from tests.pico import DOWN_0, logits, pico_llama, pico_round


def loaded(*, tied: bool = False, dtype: torch.dtype = torch.float32) -> LoadedModel:
    tokenizer = train_tokenizer(["a small text about nothing at all"], vocabulary=300)
    model = pico_llama(tied=tied).to(dtype)
    return LoadedModel(model, tokenizer, "pico", fingerprint(model))


DELTA = merge_summaries(pico_round(), MergeSettings(gamma=3.0)).delta


@pytest.mark.parametrize("tied", [False, True])
def test_stock_reload_gives_live_logits(tmp_path: Path, tied: bool) -> None:
    base = loaded(tied=tied)
    report = export_model(DELTA, base, tmp_path / "out", base_sha256=base.sha256)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with applied(base.model, DELTA) as model:
        assert torch.equal(logits(again), logits(model))
    assert not torch.allclose(logits(again), logits(base.model), atol=1e-4)
    assert (again.lm_head.weight is again.model.embed_tokens.weight) == tied
    assert report.relative_error < 1e-5
    assert fingerprint(base.model) == base.sha256
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.encode("a small text") == base.tokenizer.encode("a small text")


def test_stale_shards_do_not_survive(tmp_path: Path) -> None:
    export_model(DELTA, loaded(), tmp_path / "out")
    (tmp_path / "out" / "model-00002-of-00002.safetensors").touch()
    (tmp_path / "out" / "model.safetensors.index.json").write_text("{}")
    export_model(DELTA, loaded(), tmp_path / "out")
    assert not (tmp_path / "out" / "model.safetensors.index.json").exists()
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")


def test_non_contiguous_updates(tmp_path: Path) -> None:
    turned = {name: update.T.contiguous().T for name, update in DELTA.items()}
    export_model(turned, loaded(), tmp_path / "out")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with applied(pico_llama(), DELTA) as model:
        assert torch.equal(logits(again), logits(model))


def test_rounding_to_bfloat16_is_stated(tmp_path: Path) -> None:
    report = export_model(DELTA, loaded(dtype=torch.bfloat16), tmp_path / "out")
    assert 1e-4 < report.relative_error < 1
    stated = json.loads((tmp_path / "out" / "export.json").read_text())
    assert stated["tensors"][DOWN_0]["relative_error"] == report.tensors[DOWN_0].relative_error
    assert stated["kind"] == "model"


def test_bad_input(tmp_path: Path) -> None:
    base = loaded(tied=True)
    with pytest.raises(InputError, match="made for a model with hash abab"):
        export_model(DELTA, base, tmp_path / "out", base_sha256="ab" * 32)
    with pytest.raises(InputError, match=r"'lm_head\.weight' is tied to model\.embed_tokens"):
        export_model({"lm_head.weight": torch.zeros(64, 32)}, base, tmp_path / "out")
    with pytest.raises(InputError, match=r"'model\.x\.weight'"):
        export_model({"model.x.weight": torch.zeros(1)}, base, tmp_path / "out")
    assert not list(tmp_path.iterdir())

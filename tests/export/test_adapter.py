import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import Tensor

from fedunlearn.aggregation import MergeSettings, merge_summaries
from fedunlearn.errors import InputError
from fedunlearn.export import export_adapter
from fedunlearn.models.patching import applied
from tests.pico import DOWN_0, logits, pico_llama, pico_round, pico_summary


def merged(**lora: object) -> dict[str, Tensor]:
    if not lora:
        return merge_summaries(pico_round(), MergeSettings()).delta
    return merge_summaries(
        [pico_summary(seed=1, **lora), pico_summary("keep-0", "retain", "general", seed=2, **lora)],
        MergeSettings(),
    ).delta


def live(delta: Mapping[str, Tensor]) -> Tensor:
    with applied(pico_llama(), delta) as model:
        return logits(model)


@pytest.mark.parametrize("lora", [{}, {"target_modules": "all-linear"}], ids=str)
def test_stock_peft_gives_live_logits_at_full_rank(tmp_path: Path, lora: dict[str, object]) -> None:
    delta = merged(**lora)
    report = export_adapter(delta, None, "pico", tmp_path / "out")
    model = PeftModel.from_pretrained(pico_llama(), tmp_path / "out")
    assert not torch.allclose(logits(pico_llama()), live(delta), atol=1e-4)
    torch.testing.assert_close(logits(model), live(delta), atol=2e-5, rtol=1e-5)
    assert report.relative_error < 1e-6
    assert report.tensors[DOWN_0].rank == 32


def test_stated_error_is_that_of_the_reloaded_adapter(tmp_path: Path) -> None:
    delta = merged()
    report = export_adapter(delta, 3, "pico", tmp_path / "out")
    base = pico_llama()
    before = {name: w.detach().clone() for name, w in base.named_parameters()}
    model = PeftModel.from_pretrained(base, tmp_path / "out").merge_and_unload()
    after = dict(model.named_parameters())
    lost = {n: after[n].double() - before[n].double() - d.double() for n, d in delta.items()}
    for name, gone in lost.items():
        norm = delta[name].double().norm()
        assert report.tensors[name].relative_error == pytest.approx(
            (gone.norm() / norm).item(), rel=1e-4
        )
        best = torch.linalg.svdvals(delta[name].double())[3:].norm() / norm
        assert report.tensors[name].relative_error == pytest.approx(best.item(), rel=1e-4)
    total = torch.cat([gone.flatten() for gone in lost.values()]).norm()
    norm = torch.cat([d.double().flatten() for d in delta.values()]).norm()
    assert report.relative_error == pytest.approx((total / norm).item(), rel=1e-4)
    stated = json.loads((tmp_path / "out" / "export.json").read_text())
    assert stated["relative_error"] == report.relative_error
    assert stated["tensors"][DOWN_0]["rank"] == 3


def test_rank_falls_with_the_error(tmp_path: Path) -> None:
    delta = merged()
    errors = [
        export_adapter(delta, rank, "pico", tmp_path / "out").relative_error for rank in (1, 4, 16)
    ]
    assert errors == sorted(errors, reverse=True)


def test_an_update_of_low_rank_survives_at_that_rank(tmp_path: Path) -> None:
    delta = merge_summaries([pico_summary()], MergeSettings(method="sum")).delta
    assert export_adapter(delta, 4, "pico", tmp_path / "out").relative_error < 1e-6


def test_transposed_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    delta = {DOWN_0: merged()[DOWN_0].T}
    export_adapter(delta, None, "pico", tmp_path / "out", transposed=True)
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    stored = load_file(tmp_path / "out" / "adapter_model.safetensors")
    a, b = (stored[key] for key in sorted(stored))
    assert config["fan_in_fan_out"] is True
    torch.testing.assert_close((b @ a).T, delta[DOWN_0], atol=1e-6, rtol=1e-5)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rank must be at least 1, got 0"):
        export_adapter(merged(), 0, "pico", tmp_path / "out")
    with pytest.raises(InputError, match="no update"):
        export_adapter({}, 1, "pico", tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(InputError, match="name another folder"):
        export_adapter(merged(), 1, "pico", tmp_path / "mine")

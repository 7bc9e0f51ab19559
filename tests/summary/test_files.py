import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

from fedunlearn.errors import InputError, SummaryError
from fedunlearn.storage import TensorFile, write_tensors
from fedunlearn.summary import ClientSummary, load_summary, open_summaries, save_summary
from tests.pico import (
    DOWN_0,
    changed,
    logits,
    pico_llama,
    pico_round,
    pico_summary,
    trained_adapter,
)


def same(one: ClientSummary, other: ClientSummary) -> None:
    assert one.meta == other.meta
    assert one.adapter_config == other.adapter_config
    for part in ("adapter", "fisher"):
        left, right = getattr(one, part), getattr(other, part)
        assert sorted(left) == sorted(right)
        for name in left:
            assert left[name].dtype == right[name].dtype
            assert torch.equal(left[name], right[name])


def test_round_trip(tmp_path: Path) -> None:
    summary = pico_summary()
    save_summary(summary, tmp_path / "bio-0")
    same(load_summary(tmp_path / "bio-0"), summary)


def test_the_files_are_the_documented_ones(tmp_path: Path) -> None:
    save_summary(pico_summary(), tmp_path / "bio-0")
    assert sorted(path.name for path in (tmp_path / "bio-0").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "fisher.safetensors",
        "summary.json",
    ]
    meta = json.loads((tmp_path / "bio-0" / "summary.json").read_text())
    assert {"format_version", "client_id", "role", "domain", "objective", "num_examples"} <= set(
        meta
    )
    fisher = load_file(tmp_path / "bio-0" / "fisher.safetensors")
    assert fisher[DOWN_0].dtype == torch.bfloat16
    assert fisher[DOWN_0].shape == (32, 48)


@pytest.mark.parametrize("lora", [{}, {"use_rslora": True, "rank_pattern": {"down_proj": 2}}])
def test_stock_peft_loads_the_folder(tmp_path: Path, lora: dict[str, object]) -> None:
    live = trained_adapter(tmp_path / "stock", seed=3, **lora)
    save_summary(pico_summary(seed=3, **lora), tmp_path / "ours")
    assert torch.equal(logits(PeftModel.from_pretrained(pico_llama(), tmp_path / "ours")), live)


def test_an_invalid_summary_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(SummaryError):
        save_summary(changed(pico_summary(), domain=""), tmp_path / "bio-0")
    assert not list(tmp_path.iterdir())


def test_tensors_of_open_summaries_stay_on_disk(tmp_path: Path) -> None:
    for summary in pico_round():
        save_summary(summary, tmp_path / summary.meta.client_id)
    opened = open_summaries(tmp_path)
    assert [s.meta.client_id for s in opened] == ["bio-0", "bio-1", "keep-0", "keep-1", "law-0"]
    assert all(isinstance(s.adapter, TensorFile) for s in opened)
    assert all(isinstance(s.fisher, TensorFile) for s in opened)
    same(opened[0], pico_summary(seed=1))


def test_unfinished_folders_and_stray_files_are_left_out(tmp_path: Path) -> None:
    save_summary(pico_summary(), tmp_path / "bio-0")
    (tmp_path / ".bio-1.123.partial").mkdir()
    (tmp_path / "notes.txt").touch()
    assert len(open_summaries(tmp_path)) == 1


def test_a_folder_that_is_no_summary_is_not_dropped_in_silence(tmp_path: Path) -> None:
    save_summary(pico_summary(), tmp_path / "bio-0")
    (tmp_path / "bio-1").mkdir()
    with pytest.raises(SummaryError, match=r"bio-1.*summary\.json cannot be read"):
        open_summaries(tmp_path)


def test_a_copied_folder_is_a_duplicate(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_summary(pico_summary(), tmp_path / name)
    with pytest.raises(SummaryError, match="two summaries are from client 'bio-0'"):
        open_summaries(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(SummaryError, match="holds no summary"):
        open_summaries(tmp_path)
    with pytest.raises(SummaryError, match="no folder"):
        open_summaries(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name",
    ["adapter_config.json", "adapter_model.safetensors", "fisher.safetensors", "summary.json"],
)
@pytest.mark.parametrize("size", [None, 0, 50, -1])
def test_missing_and_truncated_files_are_named(tmp_path: Path, name: str, size: int | None) -> None:
    save_summary(pico_summary(), tmp_path / "bio-0")
    path = tmp_path / "bio-0" / name
    if size is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().strip()[:size])
    with pytest.raises(SummaryError, match=rf"bio-0.*{name}"):
        load_summary(tmp_path / "bio-0")


def test_a_tampered_tensor_is_named(tmp_path: Path) -> None:
    summary = pico_summary()
    save_summary(summary, tmp_path / "bio-0")
    spoiled = {name: fisher * -1 for name, fisher in summary.fisher.items()}
    write_tensors(tmp_path / "bio-0" / "fisher.safetensors", spoiled)
    with pytest.raises(SummaryError, match=rf"client 'bio-0' .*'{DOWN_0}' has negative"):
        open_summaries(tmp_path)


def test_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "bio-0").mkdir()
    (tmp_path / "bio-0" / "thesis.tex").touch()
    with pytest.raises(InputError, match="bio-0"):
        save_summary(pico_summary(), tmp_path / "bio-0")

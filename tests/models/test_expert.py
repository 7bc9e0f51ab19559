"""The expert adapter on a live model: there, frozen, and gone again."""

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from fedunlearn.errors import InputError
from fedunlearn.models.adapters import (
    LoraSettings,
    adapted_parameters,
    attached,
    read_adapter,
    without_trained_adapter,
)
from fedunlearn.models.expert import expert_on, load_expert
from fedunlearn.models.loading import ModelSettings, fingerprint, load_base
from tests.experts import expert_folder, saved_backbone
from tests.world import pocket_model

IDS = torch.arange(9)[None]
LORA = LoraSettings(rank=4, alpha=8, target_modules=("down_proj", "q_proj"), layers=(1,))


@torch.no_grad()
def logits(model: torch.nn.Module) -> torch.Tensor:
    return model(input_ids=IDS).logits


def stock(folder: Path) -> torch.Tensor:
    return logits(PeftModel.from_pretrained(pocket_model().model, folder).eval())


@pytest.mark.parametrize(
    "lora",
    [
        {"target_modules": ["gate_proj", "down_proj"]},
        {"target_modules": "all-linear", "use_rslora": True},
        {"target_modules": ["q_proj"], "rank_pattern": {"layers.0.self_attn.q_proj": 2}},
        {"target_modules": r".*layers\.1\..*up_proj"},
    ],
)
def test_with_the_expert_on_the_model_is_stock_peft_s_and_bare_afterwards(
    lora: dict[str, object], tmp_path: Path
) -> None:
    base, expert = pocket_model(), load_expert(str(expert_folder(tmp_path / "e", **lora)))
    bare = logits(base.model)
    with expert_on(base.model, expert):
        on = logits(base.model)
        assert not any(p.requires_grad for p in base.model.parameters())
    torch.testing.assert_close(on, stock(tmp_path / "e"))
    assert (on - bare).abs().max() > 1e-3
    assert torch.equal(logits(base.model), bare)
    assert fingerprint(base.model) == base.sha256


def test_switching_the_trained_adapter_off_keeps_the_expert_on(tmp_path: Path) -> None:
    base, expert = pocket_model(), load_expert(str(expert_folder(tmp_path)))
    with expert_on(base.model, expert):
        start = logits(base.model)
    with attached(base.model, LORA, seed=1, expert=expert) as adapted:
        assert torch.equal(logits(adapted), start), "a fresh adapter adds nothing"
        with torch.no_grad():
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.1)
        adapted.train()
        trained = logits(adapted)
        assert (trained - start).abs().max() > 1e-3
        with without_trained_adapter(adapted):
            assert torch.equal(logits(adapted), start)
        assert torch.equal(logits(adapted), trained)
    assert fingerprint(base.model) == base.sha256


def test_only_the_trained_adapter_learns_and_is_read(tmp_path: Path) -> None:
    """The expert adapts other modules too, and has dropout of its own, which stays off."""
    folder = expert_folder(tmp_path, target_modules=["up_proj", "down_proj"], lora_dropout=0.5)
    base, expert = pocket_model(), load_expert(str(folder))
    with attached(base.model, LORA, seed=1) as alone:
        expected = read_adapter(alone)
        names = adapted_parameters(alone)
    with attached(base.model, LORA, seed=1, expert=expert) as adapted:
        learning = [name for name, p in adapted.named_parameters() if p.requires_grad]
        assert len(learning) == 4
        assert all(".default." in name for name in learning)
        assert adapted_parameters(adapted) == names
        found = read_adapter(adapted)
        adapted.train()
        assert torch.equal(logits(adapted), logits(adapted))
    assert found.config == expected.config
    assert found.weights.keys() == expected.weights.keys()
    assert all(torch.equal(found.weights[key], expected.weights[key]) for key in found.weights)


def test_a_model_is_loaded_with_its_expert_beside_it(tmp_path: Path) -> None:
    path, folder = str(saved_backbone(tmp_path / "model")), expert_folder(tmp_path / "expert")
    bare = load_base(ModelSettings(path=path, device="cpu"))
    taught = load_base(ModelSettings(path=path, device="cpu", expert=str(folder)))
    assert taught.sha256 == bare.sha256 == fingerprint(taught.model)
    assert taught.start_sha256 != bare.start_sha256 == bare.sha256
    assert taught.label == f"{path} with expert {folder}"
    other = expert_folder(tmp_path / "other", seed=2)
    again = expert_folder(tmp_path / "again")
    hashes = [
        load_base(ModelSettings(path=path, device="cpu", expert=str(one))).start_sha256
        for one in (other, again)
    ]
    assert hashes[0] != taught.start_sha256 == hashes[1]


def test_the_scaling_is_part_of_an_expert_s_hash(tmp_path: Path) -> None:
    one, other = (
        load_expert(str(expert_folder(tmp_path / str(alpha), lora_alpha=alpha)))
        for alpha in (8, 16)
    )
    assert all(torch.equal(one.weights[key], other.weights[key]) for key in one.weights)
    assert one.sha256 != other.sha256


@pytest.mark.parametrize(
    ("lora", "says"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"bias": "lora_only"}, "trains biases"),
        ({"modules_to_save": ["norm"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
    ],
)
def test_an_expert_that_is_no_plain_lora_is_refused_by_name(
    lora: dict[str, object], says: str, tmp_path: Path
) -> None:
    config = LoraConfig(
        task_type="CAUSAL_LM",
        **{"target_modules": ["q_proj"], **lora},  # type: ignore[arg-type]
    )
    get_peft_model(pocket_model().model, config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=says):
        load_expert(str(tmp_path))


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expert '.*nowhere' \(no folder here, so a hub id"):
        load_expert(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="a folder, which has no revisions"):
        load_expert(str(expert_folder(tmp_path / "e")), "main")
    file = tmp_path / "e" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"expert '.*e' cannot be loaded"):
        load_expert(str(tmp_path / "e"))


def test_an_expert_of_another_model_is_refused_and_leaves_nothing_on_it(tmp_path: Path) -> None:
    base = pocket_model()
    folder = expert_folder(tmp_path / "narrow")
    config = (folder / "adapter_config.json").read_text()
    (folder / "adapter_config.json").write_text(config.replace("down_proj", "o_proj"))
    with (
        pytest.raises(InputError, match="does not fit the model"),
        expert_on(base.model, load_expert(str(folder))),
    ):
        pass
    (folder / "adapter_config.json").write_text(config.replace('"r": 4', '"r": 5'))
    with (
        pytest.raises(InputError, match=r"has shape \(4, 48\), the model takes \(5, 48\)"),
        attached(base.model, LORA, seed=0, expert=load_expert(str(folder))),
    ):
        pass
    assert fingerprint(base.model) == base.sha256
    assert not hasattr(base.model, "peft_config")


def test_a_revision_without_an_expert_is_refused() -> None:
    with pytest.raises(ValueError, match="expert_revision needs an expert"):
        ModelSettings(path="m", expert_revision="main")

"""What needs a GPU: ``pytest -m gpu``; without CUDA everything here is skipped."""

from pathlib import Path

import pytest
import torch

from fedunlearn.config import RunConfig, load_config
from fedunlearn.data.encoding import encode_record
from fedunlearn.models.adapters import LoraSettings, attached
from fedunlearn.models.expert import expert_on, load_expert
from fedunlearn.models.loading import ModelSettings, fingerprint, load_base
from fedunlearn.models.quantized import training_copy
from fedunlearn.objectives import RetainNLL
from fedunlearn.pipeline import finish, prepare
from fedunlearn.report import read_report
from fedunlearn.summary import open_summaries
from fedunlearn.training.fisher_pass import FisherSettings, estimate_fisher
from fedunlearn.training.loop import TrainingSettings, train
from fedunlearn.training.saving_memory import OptimizerName
from tests.experts import expert_folder, saved_backbone
from tests.pocket_run import pocket_tree, run_clients, write_config
from tests.world import pocket_model, pocket_world, questions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
NAMES = ["model.layers.0.mlp.down_proj.weight", "model.layers.1.self_attn.q_proj.weight"]


def on_cuda(folder: Path, device: str, **model: object) -> RunConfig:
    """The same recipe on a device, with an expert; on CUDA with all that saves memory there."""
    tree = pocket_tree(pocket_world(folder / "world"))
    tree["model"] |= {"device": device, "expert": str(expert_folder(folder / "expert")), **model}
    if device == "cuda":
        for role in ("forget", "retain"):
            tree[role] |= {"optimizer": "paged_adamw_8bit", "gradient_checkpointing": True}
    return load_config(write_config(folder / f"{device}.yaml", tree), local=True)


def test_the_same_recipe_on_cuda_with_nf4(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    config = on_cuda(tmp_path, "cuda", quantization="nf4")
    run_dir = tmp_path / "run"
    prepare(config, run_dir, local=True)
    run_clients(config, run_dir)
    report = finish(run_dir, config)
    assert report == read_report(run_dir)
    plain = on_cuda(tmp_path, "cpu")
    other_dir = tmp_path / "plain"
    prepare(plain, other_dir, local=True)
    run_clients(plain, other_dir)
    for one, other in zip(
        open_summaries(run_dir / "summaries"), open_summaries(other_dir / "summaries"), strict=True
    ):
        assert one.meta.base_model_sha256 == other.meta.base_model_sha256
        name = one.weights()[0]
        updates = [summary.task_vector(name).flatten() for summary in (one, other)]
        assert torch.nn.functional.cosine_similarity(*updates, dim=0) > 0.5


@pytest.mark.parametrize("batch_size", [1, 4])
def test_the_fisher_on_cuda_is_the_cpu_s(batch_size: int, tmp_path: Path) -> None:
    """Within one rounding to bfloat16, and a millionth of the largest entry."""
    path = str(saved_backbone(tmp_path))
    chosen = FisherSettings(num_sequences=6, batch_size=batch_size)
    fishers = []
    for device in ("cpu", "cuda"):
        base = load_base(ModelSettings(path=path, device=device))
        examples = [encode_record(base.tokenizer, q, max_length=64) for q in questions(4)]
        fishers.append(estimate_fisher(base.model, examples, NAMES, chosen=chosen))
        assert fingerprint(base.model) == base.sha256
    for name in NAMES:
        slow, fast = (fisher[name].double() for fisher in fishers)
        torch.testing.assert_close(fast, slow, rtol=2**-7, atol=float(slow.max()) * 1e-6)


@pytest.mark.parametrize("name", ["adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"])
def test_small_and_paged_optimisers_learn(name: OptimizerName) -> None:
    pytest.importorskip("bitsandbytes")
    base = pocket_model()
    base.model.to("cuda")
    examples = [encode_record(base.tokenizer, q, max_length=64) for q in questions(4)]
    chosen = TrainingSettings(
        objective={"name": "retain_nll"}, learning_rate=1e-2, epochs=10, optimizer=name
    )
    with attached(base.model, LoraSettings(rank=8), seed=0) as adapted:
        facts = train(
            adapted,
            examples,
            RetainNLL(),
            chosen=chosen,
            pad_id=0,
            generator=torch.Generator().manual_seed(0),
        )
    assert facts.last_loss < facts.first_loss


def test_an_expert_follows_the_model_to_the_device(tmp_path: Path) -> None:
    base, expert = pocket_model(), load_expert(str(expert_folder(tmp_path)))
    ids = torch.arange(9)[None]
    with torch.no_grad(), expert_on(base.model, expert):
        slow = base.model(input_ids=ids).logits
    base.model.to("cuda")
    with torch.no_grad(), expert_on(base.model, expert):
        fast = base.model(input_ids=ids.cuda()).logits
    torch.testing.assert_close(fast.cpu(), slow, rtol=1e-4, atol=1e-4)


def test_the_4_bit_copy_is_gone_before_the_model_is_back(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    path = str(saved_backbone(tmp_path))
    base = load_base(ModelSettings(path=path, device="cuda", quantization="nf4"))
    whole = torch.cuda.memory_allocated()
    with training_copy(base) as copy:
        assert copy.device.type == "cuda"
        assert torch.cuda.memory_allocated() < 1.5 * whole
    assert fingerprint(base.model) == base.sha256
    assert torch.cuda.memory_allocated() < 1.2 * whole

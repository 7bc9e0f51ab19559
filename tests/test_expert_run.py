"""A run on backbone and expert, from teaching to the export."""

import json
import math
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from fedunlearn.aggregation import read_merge
from fedunlearn.cli import run_command
from fedunlearn.config import RunConfig, check_config, load_config
from fedunlearn.data.encoding import encode_record
from fedunlearn.data.reading import read_training_records
from fedunlearn.errors import RunError, SummaryError
from fedunlearn.evaluation import evaluate, read_bank
from fedunlearn.export import export_model
from fedunlearn.models.adapters import attached
from fedunlearn.models.expert import expert_on
from fedunlearn.models.loading import LoadedModel, load_base
from fedunlearn.models.patching import applied
from fedunlearn.objectives import NPO
from fedunlearn.pipeline import finish, prepare
from fedunlearn.rounds import Hello, build_roster
from fedunlearn.summary import open_summaries, save_summary
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.fisher_pass import estimate_fisher
from fedunlearn.training.loop import TrainingFacts, TrainingSettings, train
from tests.experts import expert_folder
from tests.pocket_run import TRAINING, pocket_tree, run_clients, write_config
from tests.world import pocket_model, pocket_world, questions

IDS = torch.arange(5, 14)[None]
LESSON = {
    "lora": {"rank": 8, "alpha": 16, "target_modules": ["all-linear"]},
    "training": {
        "objective": {"name": "retain_nll"},
        **TRAINING,
        "learning_rate": 2e-2,
        "epochs": 20,
        "schedule": "cosine",
    },
}


def call(*arguments: object) -> int:
    return run_command([str(one) for one in arguments])


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A config whose expert was taught by our own command."""
    folder = tmp_path_factory.mktemp("taught")
    world = pocket_world(folder / "world", epochs=20)
    tree = pocket_tree(world)
    tree["teach"] = {"data": str(world / "data" / "corpus.jsonl"), **LESSON}
    tree["model"]["expert"] = str(folder / "expert")
    tree["sweep"] = {}
    tree["federation"] = {"fisher_upload": "all"}
    path = write_config(folder / "c.yaml", tree)
    assert call("teach", "--out", folder / "expert", path) == 0
    return path


@pytest.fixture(scope="module")
def run_dir(config_file: Path) -> Path:
    folder, config = config_file.parent / "run", load_config(config_file, local=True)
    prepare(config, folder, local=True)
    run_clients(config, folder)
    finish(folder, config)
    return folder


def configured(run_dir: Path) -> tuple[RunConfig, LoadedModel]:
    config = load_config(run_dir / "config.yaml")
    return config, load_base(config.model)


@torch.no_grad()
def logits(model: torch.nn.Module) -> torch.Tensor:
    return model(input_ids=IDS).logits


def test_the_expert_was_taught(run_dir: Path) -> None:
    """The model starts from what it was taught: its answers are likelier than the backbone's."""
    config, base = configured(run_dir)
    bank = read_bank(config.evaluation)
    with_it = evaluate(base, bank, config.evaluation)
    object.__setattr__(base, "expert", None)
    without = evaluate(base, bank, config.evaluation)
    for name, one in with_it.items():
        known, unknown = sum(one.answer_probability), sum(without[name].answer_probability)
        assert known > 1.2 * unknown, name
    report = json.loads((run_dir / "report.json").read_text())
    for name, one in with_it.items():
        reported = report["base"][name]["answer_probability"]["mean"]
        assert reported == pytest.approx(sum(one.answer_probability) / len(one.answer_probability))


def test_npo_starts_at_its_fixed_point_with_the_expert_on(run_dir: Path) -> None:
    """Policy == reference: 2/beta log 2; with the bare backbone as reference it would not be."""
    _, base = configured(run_dir)
    examples = [encode_record(base.tokenizer, q, max_length=64) for q in questions(4)]

    def first_loss(model: torch.nn.Module) -> float:
        return train(
            model,
            examples,
            NPO(beta=0.1),
            chosen=TrainingSettings(objective={"name": "npo"}, epochs=1),
            pad_id=0,
            generator=torch.Generator().manual_seed(0),
        ).first_loss

    config = load_config(run_dir / "config.yaml")
    with attached(base.model, config.lora, seed=0, expert=base.expert) as adapted:
        assert first_loss(adapted) == pytest.approx(2 / 0.1 * math.log(2), abs=1e-4)
        for name, parameter in adapted.named_parameters():
            parameter.requires_grad_(".lora_" in name)  # the expert passes for trained: is off
        assert abs(first_loss(adapted) - 13.863) > 0.1


def test_the_fisher_is_the_bare_backbone_s_and_not_that_with_the_expert(run_dir: Path) -> None:
    config, base = configured(run_dir)
    (summary,) = (s for s in open_summaries(run_dir / "summaries") if s.meta.role == "retain")
    data = config.clients[3].data
    examples = [
        encode_record(base.tokenizer, record, max_length=config.fisher.max_length)
        for record in read_training_records(data)
    ]
    name = summary.weights()[0]
    bare = estimate_fisher(base.model, examples, [name], chosen=config.fisher)[name]
    assert torch.equal(summary.fisher[name], bare)
    with expert_on(base.model, base.expert):
        inside = name.removesuffix(".weight") + ".base_layer.weight"
        taught = estimate_fisher(base.model, examples, [inside], chosen=config.fisher)[inside]
    difference = (taught.float() - bare.float()).norm() / bare.float().norm()
    assert difference > 0.05
    assert summary.meta.fisher["reference_sha256"] == base.sha256


def test_a_fisher_with_the_expert_left_on_is_refused(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, base = configured(run_dir)

    def merging(*given: object, **named: object) -> TrainingFacts:
        facts = train(*given, **named)  # type: ignore[arg-type]
        for module in base.model.modules():
            if hasattr(module, "merge") and hasattr(module, "lora_A"):
                module.merge(adapter_names=["expert"])
        return facts

    monkeypatch.setattr("fedunlearn.training.client_job.train", merging)
    # PEFT unmerges on unload; what is left is the rounding of that, and the hash sees it
    with pytest.raises(RunError, match="Fisher must be taken at the weights of"):
        run_client_job(base, config.clients[0], config.instructions())


def test_merged_updates_are_measured_on_top_of_the_expert(run_dir: Path) -> None:
    config, base = configured(run_dir)
    merged = read_merge(run_dir / "merged" / "sum")
    bank = read_bank(config.evaluation)
    with applied(base.model, merged.delta):
        scores = evaluate(base, bank, config.evaluation)
    report = json.loads((run_dir / "report.json").read_text())
    for name, one in scores.items():
        reported = report["scores"]["sum"][name]["answer_probability"]["mean"]
        assert reported == pytest.approx(sum(one.answer_probability) / len(one.answer_probability))
    assert base.expert is not None
    assert merged.report.expert == base.expert.name
    assert merged.report.expert_sha256 == base.expert.sha256
    assert merged.report.base_model_sha256 == base.start_sha256 != base.sha256


def test_both_exports_are_backbone_expert_and_update_together(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, base = configured(run_dir)
    delta = read_merge(run_dir / "merged" / "sum").delta
    with applied(base.model, delta), expert_on(base.model, base.expert):
        live = logits(base.model)
    with expert_on(base.model, base.expert):
        assert (logits(base.model) - live).abs().max() > 1e-3
    assert call("export", run_dir, "--method", "sum", "--out", tmp_path / "m") == 0
    whole = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval())
    torch.testing.assert_close(whole, live, rtol=1e-4, atol=1e-4)
    assert (
        call("export", run_dir, "--method", "sum", "--as", "adapter", "--out", tmp_path / "a") == 0
    )
    backbone = AutoModelForCausalLM.from_pretrained(config.model.path)
    joint = logits(PeftModel.from_pretrained(backbone, tmp_path / "a").eval())
    torch.testing.assert_close(joint, live, rtol=1e-4, atol=1e-4)
    said = capsys.readouterr().out
    assert said.count(f"and of expert {config.model.expert}") == 2
    for kind in ("m", "a"):
        stated = json.loads((tmp_path / kind / "export.json").read_text())
        assert (stated["base_model"], stated["expert"]) == (config.model.path, config.model.expert)
        assert len(stated["tensors"]) == 14, "all linear layers of two blocks carry the expert"
    ranks = {
        name: one["rank"]
        for name, one in json.loads((tmp_path / "a" / "export.json").read_text())["tensors"].items()
    }
    assert ranks["model.layers.0.mlp.down_proj.weight"] == 8
    assert ranks["model.layers.1.mlp.down_proj.weight"] == 32 + 8


def test_the_backbone_is_as_it_was_after_an_export(run_dir: Path, tmp_path: Path) -> None:
    _, base = configured(run_dir)
    before = logits(base.model)
    export_model(read_merge(run_dir / "merged" / "sum").delta, base, tmp_path / "m")
    assert torch.equal(logits(base.model), before)


def test_an_export_with_another_expert_is_refused(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = expert_folder(tmp_path / "other")
    config = run_dir / "config.yaml"
    text = config.read_text()
    taught = str(load_config(config).model.expert)
    config.write_text(text.replace(f"expert: {taught}", f"expert: {other}"))
    try:
        for form in ("model", "adapter"):
            assert call("export", run_dir, "--as", form, "--out", tmp_path / "e") == 2
            assert "expert" in capsys.readouterr().err
    finally:
        config.write_text(text)


def test_two_clients_with_different_experts_are_refused_by_name(
    config_file: Path, tmp_path: Path
) -> None:
    tree = load_config(config_file)
    folder = expert_folder(tmp_path / "stranger")
    one = load_base(tree.model)
    other = load_base(load_config(config_file, [f"model.expert={folder}"]).model)
    assert one.sha256 == other.sha256
    hellos = [
        Hello(number, name, "forget", "d", 1, base.label, base.start_sha256)
        for number, (name, base) in enumerate({"a": one, "b": other}.items())
    ]
    with pytest.raises(RunError, match=r"with expert .*/expert\) at a; .*stranger\) at b"):
        build_roster(hellos)
    run_clients(tree, tmp_path / "run")
    changed = load_config(config_file, [f"model.expert={folder}"])
    summary = run_client_job(other, changed.clients[0], changed.instructions())

    save_summary(summary, tmp_path / "run" / "summaries" / "brewing-0")
    with pytest.raises(SummaryError) as caught:
        open_summaries(tmp_path / "run" / "summaries")
    said = str(caught.value)
    assert "'brewing-0'" in said
    assert f"with expert {folder}" in said
    assert f"with expert {tree.model.expert}" in said


def test_the_server_refuses_an_expert_that_the_clients_did_not_have(
    run_dir: Path, config_file: Path, tmp_path: Path
) -> None:
    without = load_config(config_file, ["model.expert=null"])
    with pytest.raises(RunError, match="same model, dtype and expert on all sides"):
        finish(run_dir, without)


def test_a_config_s_expert_is_checked(config_file: Path, tmp_path: Path) -> None:
    assert check_config(config_file) == []
    (fault,) = check_config(config_file, [f"model.expert={tmp_path / 'gone'}"])
    assert fault.startswith("model.expert: expert")
    (fault,) = check_config(config_file, ["teach.data=/gone.jsonl"])
    assert fault.startswith("teach.data: ")
    faults = check_config(config_file, ["teach.training.objective.name=npo"])
    assert any("an expert is taught" in fault for fault in faults)


def test_teaching_needs_a_lesson(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("teach", "--out", tmp_path / "e", config_file, "teach=null") == 2
    assert "no section teach" in capsys.readouterr().err


def test_the_same_lesson_gives_the_same_expert(config_file: Path, tmp_path: Path) -> None:
    assert call("teach", "--out", tmp_path / "again", config_file) == 0
    first, again = (
        folder / "adapter_model.safetensors"
        for folder in (config_file.parent / "expert", tmp_path / "again")
    )
    assert first.read_bytes() == again.read_bytes()


def test_a_model_made_in_memory_has_no_expert() -> None:
    base = pocket_model()
    assert (base.label, base.start_sha256) == ("pocket", base.sha256)

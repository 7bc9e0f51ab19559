"""A client's work on one published copy: what moves, what stays, what it depends on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedunlearn.copies.update import CopyTicket, CopyUpdate
from fedunlearn.data.records import write_jsonl
from fedunlearn.errors import InputError
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.architecture import Architecture, load_architecture
from fedunlearn.models.loading import ModelSettings
from fedunlearn.objectives import OBJECTIVES
from fedunlearn.training.client_settings import ClientIdentity
from fedunlearn.training.copy_job import CopyInstructions, run_copy_job
from fedunlearn.training.loop import TrainingSettings
from fedunlearn.training.starting_model import StartingModel
from tests.world import pocket_model, questions

TICKET = CopyTicket(run="arm", server_round=1, copy=1, digest="0" * 64)
LORA = LoraSettings(rank=2, alpha=4)


@pytest.fixture(scope="module")
def architecture(tmp_path_factory: pytest.TempPathFactory) -> Architecture:
    folder, made = tmp_path_factory.mktemp("architecture"), pocket_model()
    made.model.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]
    return load_architecture(ModelSettings(path=str(folder), device="cpu"))


def training(name: str, **options: Any) -> TrainingSettings:
    return TrainingSettings(
        objective={"name": name, **options}, learning_rate=1e-3, epochs=2, batch_size=2
    )


def told(forget: TrainingSettings | None = None, **changes: Any) -> CopyInstructions:
    start = CopyInstructions(seed=3, ticket=TICKET, forget=forget or training("npo"))
    return replace(start, **changes)


def identity(folder: Path, **changes: Any) -> ClientIdentity:
    for name, count in (("data", 4), ("kept", 6)):
        rows = [{"question": q.question, "answer": q.answer} for q in questions(count)]
        write_jsonl(folder / f"{name}.jsonl", rows)  # type: ignore[arg-type]
    who = ClientIdentity(
        id="town-0",
        role="forget",
        domain="towns",
        data=str(folder / "data.jsonl"),
        retain_data=str(folder / "kept.jsonl"),
    )
    return replace(who, **changes)


def weights(seed: int = 3) -> dict[str, Tensor]:
    return {k: v.detach().clone() for k, v in pocket_model(seed=seed).model.named_parameters()}


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_all_weights_move_and_the_copy_stays_as_it_was(
    architecture: Architecture, tmp_path: Path
) -> None:
    published, before = weights(), weights()
    update = run_copy_job(architecture, identity(tmp_path), told(), published)
    assert same(published, before)
    assert update.tensors.keys() == published.keys()
    assert all(bool(one.count_nonzero()) for one in update.tensors.values())
    assert (update.meta.client_id, update.meta.num_examples, update.meta.ticket) == (
        "town-0",
        4,
        TICKET,
    )
    assert update.meta.training["steps"] == 4


def test_an_adapter_comes_as_factors(architecture: Architecture, tmp_path: Path) -> None:
    update = run_copy_job(architecture, identity(tmp_path), told(lora=LORA), weights())
    assert update.meta.adapter_config is not None
    assert update.meta.adapter_config["r"] == 2
    assert sorted(update.tensors)[0].endswith("layers.0.mlp.down_proj.lora_A.weight")
    assert len(update.tensors) == 4


def test_what_is_drawn_depends_on_seed_client_and_round_and_not_on_the_copy(
    architecture: Architecture, tmp_path: Path
) -> None:
    def run(name: str = "town-0", **changes: Any) -> CopyUpdate:
        who = identity(tmp_path, id=name)
        return run_copy_job(architecture, who, told(lora=LORA, **changes), weights())

    first = run()
    assert same(first.tensors, run(ticket=replace(TICKET, copy=2)).tensors)
    for other in (run(seed=4), run(ticket=replace(TICKET, server_round=2)), run("town-1")):
        assert not same(first.tensors, other.tensors)


FORGETTING = [name for name in OBJECTIVES if OBJECTIVES[name].role == "forget"]


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("name", FORGETTING)
def test_every_objective_works_on_all_weights_and_on_an_adapter(
    name: str, lora: LoraSettings | None, architecture: Architecture, tmp_path: Path
) -> None:
    options = {"layer": 0} if name == "rmu" else {}
    update = run_copy_job(
        architecture, identity(tmp_path), told(training(name, **options), lora=lora), weights()
    )
    assert update.meta.training["diverged_at_step"] is None


def test_the_reference_is_the_published_copy_also_when_all_weights_are_trained(
    architecture: Architecture, tmp_path: Path
) -> None:
    """NPO's first loss, before any step, is 2/beta ln 2 when policy and reference agree."""
    npo = replace(training("npo", beta=0.1), epochs=1, batch_size=4)
    for seed in (3, 4):
        update = run_copy_job(architecture, identity(tmp_path), told(npo), weights(seed))
        assert update.meta.training["first_loss"] == pytest.approx(13.863, abs=1e-3)


def test_a_copy_of_the_starting_model_is_made_only_where_it_is_read_again() -> None:
    model = pocket_model().model.requires_grad_(True)
    plain, read = (StartingModel(model, read_again=one) for one in (False, True))
    ids = torch.arange(9)[None]
    before = model(input_ids=ids).logits.detach()
    with plain.running() as running:
        assert running is model
    with torch.no_grad():
        next(iter(model.parameters())).add_(0.1)
    with read.running() as running, torch.no_grad():
        assert running is not model
        assert torch.equal(running(input_ids=ids).logits, before)
        assert not any(one.requires_grad for one in running.parameters())


def test_faults_name_client_and_tensor(architecture: Architecture, tmp_path: Path) -> None:
    published = weights()
    del published["model.norm.weight"]
    with pytest.raises(InputError, match=r"forget client 'town-0' \(towns\).*model\.norm\.weight"):
        run_copy_job(architecture, identity(tmp_path), told(), published)
    retain = identity(tmp_path, role="retain", retain_data=None)
    with pytest.raises(InputError, match="no training for retain clients"):
        run_copy_job(architecture, retain, told(), weights())
    with pytest.raises(InputError, match="retain_data: the objective has a retain term"):
        run_copy_job(
            architecture,
            identity(tmp_path, retain_data=None),
            told(training("grad_diff")),
            weights(),
        )

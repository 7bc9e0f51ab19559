"""A few steps on a few rows: seeded, halting anywhere, and leaving no trace."""

import pytest
import torch

from fedunlearn.data.encoding import Example, encode_record
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.loading import LoadedModel, fingerprint
from fedunlearn.training.relearning import RelearnSettings, relearning
from tests.world import pocket_model, questions

LORA = LoraSettings(rank=8, alpha=32, target_modules=("all-linear",))


def examples(base: LoadedModel) -> list[Example]:
    return [encode_record(base.tokenizer, one, max_length=64) for one in questions(4)]


def chosen(lora: LoraSettings | None) -> RelearnSettings:
    return RelearnSettings(steps=(1, 3), batch_size=2, learning_rate=1e-2, lora=lora)


def loss(base: LoadedModel) -> float:
    with torch.no_grad():
        losses = [
            base.model(
                input_ids=torch.tensor([one.input_ids]), labels=torch.tensor([one.labels])
            ).loss
            for one in examples(base)
        ]
    return float(torch.stack(losses).mean())


@pytest.mark.parametrize("lora", [LORA, None])
def test_it_learns_and_leaves_the_model_as_it_was(lora: LoraSettings | None) -> None:
    base = pocket_model()
    before = loss(base)
    with relearning(base, examples(base), chosen(lora), seed=1) as relearner:
        relearner.advance(0)
        assert loss(base) == pytest.approx(before, abs=1e-6)
        relearner.advance(3)
        assert loss(base) < before - 0.05
        assert not base.model.training
    assert fingerprint(base.model) == base.sha256
    assert not any(weight.requires_grad for weight in base.model.parameters())


@pytest.mark.parametrize("lora", [LORA, None])
def test_halting_between_changes_nothing_and_the_seed_decides(lora: LoraSettings | None) -> None:
    base = pocket_model()

    def after(*stops: int, seed: int) -> float:
        with relearning(base, examples(base), chosen(lora), seed=seed) as relearner:
            for stop in stops:
                relearner.advance(stop)
                loss(base)
            return loss(base)

    assert after(3, seed=1) == after(1, 2, 3, seed=1)
    assert after(3, seed=1) != after(3, seed=2)


def test_steps_that_never_learn_are_refused() -> None:
    with pytest.raises(ValueError, match="one of them > 0"):
        RelearnSettings(steps=(0,))

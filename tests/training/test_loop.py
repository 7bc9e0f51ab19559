from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from fedunlearn.data.encoding import encode_record
from fedunlearn.errors import RunError
from fedunlearn.models.adapters import LoraSettings, attached, read_adapter
from fedunlearn.objectives import NPO, RMU, GradAscent, Objective, RetainNLL
from fedunlearn.seeding import generator
from fedunlearn.training.loop import TrainingFacts, TrainingSettings, train
from tests.world import pocket_model, questions

BASE = pocket_model()
EXAMPLES = [encode_record(BASE.tokenizer, q, max_length=256) for q in questions(5)]
LORA = LoraSettings(rank=4, alpha=8, target_modules=("down_proj", "q_proj"))


def run(
    objective: Objective, *, seed: int = 0, checkpointing: bool = False, **options: object
) -> tuple[TrainingFacts, dict[str, torch.Tensor]]:
    chosen = TrainingSettings(objective={}, **{"learning_rate": 1e-3, "epochs": 2, **options})  # type: ignore[arg-type]
    with attached(BASE.model, LORA, seed=7) as adapted:
        with checkpointed(adapted.get_base_model()) if checkpointing else nullcontext():
            facts = train(
                adapted, EXAMPLES, objective, chosen, pad_id=0, generator=generator(seed, "order")
            )
        return facts, read_adapter(adapted).weights


@contextmanager
def checkpointed(model: Any) -> Iterator[None]:
    """Checkpointing on and off, under whichever name this transformers has for it."""
    word = "activation" if hasattr(model, "activation_checkpointing_disable") else "gradient"
    getattr(model, f"{word}_checkpointing_enable")()
    assert any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    yield
    getattr(model, f"{word}_checkpointing_disable")()


@pytest.mark.parametrize(
    "objective",
    [GradAscent(), NPO(), RetainNLL(), RMU(layer=1, steering=5.0).bind(generator(0), 32)],
    ids=lambda o: type(o).__name__,
)
def test_training_moves_every_factor_and_lowers_the_objective(objective: Objective) -> None:
    facts, weights = run(objective, epochs=4)
    assert facts.steps == 4 * 2
    assert facts.last_loss < facts.first_loss
    assert all(bool(value.count_nonzero()) for value in weights.values())


def test_the_last_partial_batch_counts_and_progress_ends_at_the_total() -> None:
    seen: list[tuple[int, int]] = []
    chosen = TrainingSettings(objective={}, epochs=1, batch_size=2)
    with attached(BASE.model, LORA, seed=7) as adapted:
        train(
            adapted,
            EXAMPLES,
            RetainNLL(),
            chosen,
            pad_id=0,
            generator=generator(0),
            progress=lambda done, total: seen.append((done, total)),
        )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_one_seed_one_adapter_and_another_seed_another() -> None:
    first, again, other = (run(NPO(), seed=seed, batch_size=2)[1] for seed in (0, 0, 1))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_accumulated_batches_equal_one_large_batch_for_npo() -> None:
    _, small = run(NPO(), batch_size=1, gradient_accumulation=4)
    _, large = run(NPO(), batch_size=4)
    for key in small:
        torch.testing.assert_close(small[key], large[key], rtol=1e-3, atol=1e-5)


def test_gradient_checkpointing_learns_the_same() -> None:
    _, plain = run(NPO())
    _, checkpointed = run(NPO(), checkpointing=True)
    assert all(bool(value.norm() > 0) for key, value in checkpointed.items() if "lora_B" in key)
    for key in plain:
        torch.testing.assert_close(plain[key], checkpointed[key], rtol=1e-5, atol=1e-5)


def test_a_forget_client_stops_when_its_answers_are_gone() -> None:
    far, _ = run(GradAscent(), epochs=40, learning_rate=1e-2)
    near, _ = run(GradAscent(), epochs=40, learning_rate=1e-2, stop_at_loss=6.15)
    assert near.stopped_early
    assert not far.stopped_early
    assert near.epochs < far.epochs == 40
    assert 6.15 <= near.answer_loss < far.answer_loss


def test_a_loss_that_is_not_finite_stops_with_the_step_and_the_remedy() -> None:
    class Broken(RetainNLL):
        def __call__(self, inputs):  # type: ignore[no-untyped-def]
            return super().__call__(inputs) * float("nan")

    remedy = r"not finite at step 1 .* lower the learning rate \(0\.001\)"
    with pytest.raises(RunError, match=remedy):
        run(Broken())

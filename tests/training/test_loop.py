from contextlib import nullcontext

import pytest
import torch

from fedunlearn.data.encoding import encode_record
from fedunlearn.errors import InputError, RunError
from fedunlearn.models.adapters import LoraSettings, attached, read_adapter
from fedunlearn.objectives import NPO, RMU, GradAscent, Objective, RetainNLL
from fedunlearn.seeding import generator
from fedunlearn.training.loop import TrainingFacts, TrainingSettings, train
from fedunlearn.training.saving_memory import OptimizerName, make_adamw
from tests.world import checkpointed, pocket_model, questions

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
                adapted,
                EXAMPLES,
                objective,
                chosen=chosen,
                pad_id=0,
                generator=generator(seed, "order"),
            )
        return facts, read_adapter(adapted).weights


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
            chosen=chosen,
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


def test_npo_starts_at_the_value_of_policy_and_reference_being_one_model() -> None:
    """The reference is the model the client started from, on the same answers in any order."""
    facts, _ = run(NPO(beta=0.1), epochs=1, batch_size=len(EXAMPLES))
    assert facts.first_loss == pytest.approx(13.863, abs=1e-3)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_rate_rises_from_zero_over_the_warm_up(schedule: str) -> None:
    """The first of five steps is taken at rate 0, whatever comes after the warm-up."""
    warm = {"batch_size": 1, "schedule": schedule, "warmup_ratio": 0.8}
    one = run(RetainNLL(), epochs=1, **warm)[1]
    cold = run(RetainNLL(), epochs=1, batch_size=1, schedule=schedule)[1]
    moved, freely = (
        sum(value.norm().item() for key, value in weights.items() if "lora_B" in key)
        for weights in (one, cold)
    )
    assert 0 < moved < 0.7 * freely


def test_dropout_is_drawn_from_the_adapter_s_seed_and_from_nothing_else() -> None:
    dropping = LoraSettings(rank=4, alpha=8, target_modules=("down_proj",), dropout=0.5)

    def trained(lora: LoraSettings, global_seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(global_seed)
        chosen = TrainingSettings(objective={}, learning_rate=1e-3, epochs=1)
        with attached(BASE.model, lora, seed=7) as adapted:
            train(adapted, EXAMPLES, RetainNLL(), chosen=chosen, pad_id=0, generator=generator(0))
            return read_adapter(adapted).weights

    first, again = (trained(dropping, seed) for seed in (1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    without = trained(LoraSettings(rank=4, alpha=8, target_modules=("down_proj",)), 1)
    assert any(not torch.equal(first[key], without[key]) for key in first)


@pytest.mark.parametrize(
    "objective",
    [NPO(), RMU(layer=1, steering=5.0).bind(generator(0), 32)],
    ids=lambda o: type(o).__name__,
)
@pytest.mark.parametrize("how", [{"gradient_checkpointing": True}, {"checkpointing": True}])
def test_gradient_checkpointing_learns_the_same(
    objective: Objective, how: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, plain = run(objective)
    passes = []
    kind = type(BASE.model.model.layers[0].mlp)
    real = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, x: passes.append(1) or real(self, x))
    _, once = run(objective)
    without = len(passes)
    _, checkpointed = run(objective, **how)  # type: ignore[arg-type]
    assert len(passes) - without > without  # some were made a second time
    assert all(bool(value.norm() > 0) for key, value in checkpointed.items() if "lora_B" in key)
    for key in plain:
        assert torch.equal(plain[key], once[key])
        torch.testing.assert_close(plain[key], checkpointed[key], rtol=1e-5, atol=1e-5)
    passes.clear()
    run(objective)
    assert len(passes) == without  # and it is off again


@pytest.mark.parametrize("optimizer", ["adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"])
def test_optimisers_of_bitsandbytes_are_for_cuda(optimizer: str) -> None:
    with pytest.raises(InputError, match=f"'{optimizer}' needs CUDA"):
        run(NPO(), optimizer=optimizer)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("optimizer", ["adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"])
def test_optimisers_of_bitsandbytes_learn(optimizer: OptimizerName) -> None:
    weight = torch.nn.Parameter(torch.full((64, 64), 3.0, device="cuda"))
    adamw = make_adamw(optimizer, [weight], learning_rate=0.1, weight_decay=0.0)
    for _ in range(100):
        weight.square().sum().backward()
        adamw.step()
        adamw.zero_grad()
    assert weight.abs().max() < 0.5


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

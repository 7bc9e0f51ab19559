"""Every objective on a real model with a real adapter: steps, gradients, reference values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from peft import LoraConfig
from peft.tuners.lora import LoraLayer

from fedunlearn.data.encoding import Example, collate, encode_record
from fedunlearn.data.records import Question
from fedunlearn.models.adapters import LoraSettings, attached, without_trained_adapter
from fedunlearn.models.loading import fingerprint
from fedunlearn.objectives import OBJECTIVES, Objective, UnDIAL
from fedunlearn.objectives.likelihood import sequence_log_probs
from fedunlearn.seeding import generator
from fedunlearn.training.batches import Step, TrainingData
from fedunlearn.training.forward import aligned_logits
from fedunlearn.training.learner import Learner, StepLosses
from fedunlearn.training.loop import TrainingSettings, train
from tests.objectives.batches import variants
from tests.world import pocket_model, questions

BASE = pocket_model()
QUESTIONS = questions(12)


def encoded(chosen: list[Question]) -> list[Example]:
    return [encode_record(BASE.tokenizer, one, max_length=256) for one in chosen]


EXAMPLES = encoded(list(QUESTIONS[:8]))
PREFERRED = encoded(
    [Question(q.question, "I do not know." * (i % 3 + 1)) for i, q in enumerate(QUESTIONS[:8])]
)
RETAIN = encoded([Question(q.question, q.answer[: 5 + 7 * i]) for i, q in enumerate(QUESTIONS[8:])])
LORA = LoraSettings(rank=4, alpha=8, target_modules=("down_proj", "q_proj"))
CASES = [(name, options) for name in OBJECTIVES for options in variants(name)]
every = pytest.mark.parametrize(
    ("name", "options"), CASES, ids=[f"{name}-{options}" for name, options in CASES]
)


def bound(name: str, options: dict[str, Any]) -> Objective:
    options = {"layer": 1, "steering": 5.0, **options} if name == "rmu" else options
    return OBJECTIVES.build(name, options).bind(generator(0), 32)


def data(objective: Objective, sizes: TrainingSettings) -> TrainingData:
    return TrainingData(
        EXAMPLES,
        PREFERRED if objective.needs_preferred else (),
        RETAIN if objective.needs_retain else (),
        sizes,
        0,
        torch.device("cpu"),
    )


@contextmanager
def moved_adapter(*, seed: int = 3) -> Iterator[torch.nn.Module]:
    """An adapter as in the middle of training, so that it differs from the starting model."""
    draw = torch.Generator().manual_seed(seed)
    with attached(BASE.model, LORA, seed=7) as adapted:
        with torch.no_grad():
            for name, weight in adapted.named_parameters():
                if "lora_B" in name:
                    weight.copy_(torch.randn(weight.shape, generator=draw) * 0.1)
        yield adapted


def one_step(
    name: str, options: dict[str, Any], *, batch_size: int, accumulation: int
) -> tuple[StepLosses, dict[str, torch.Tensor]]:
    """Losses and gradient of one step over all examples, 3 retained records going round."""
    sizes = TrainingSettings(
        objective={}, batch_size=batch_size, gradient_accumulation=accumulation
    )
    objective = bound(name, options)
    with moved_adapter() as model:
        cut = data(objective, sizes)
        learner = Learner(model, objective, cut)
        step = Step(range(8), [0, 1, 2, 0, 1, 2, 0, 1] if objective.needs_retain else [])
        losses = learner.learn(cut.parts(step))
        assert not any(
            weight.grad is not None for key, weight in model.named_parameters() if "lora" not in key
        )
        slopes = {
            key: weight.grad.clone()
            for key, weight in model.named_parameters()
            if weight.grad is not None
        }
    return losses, slopes


@every
def test_eight_times_one_is_two_times_four_is_eight(name: str, options: dict[str, Any]) -> None:
    whole, slopes = one_step(name, options, batch_size=8, accumulation=1)
    lengths = {sum(label != -100 for label in one.labels) for one in EXAMPLES}
    assert len(lengths) > 1  # else means over tokens and over sequences would be the same
    assert slopes
    for batch_size, accumulation in ((1, 8), (4, 2)):
        losses, others = one_step(name, options, batch_size=batch_size, accumulation=accumulation)
        assert losses.loss == pytest.approx(whole.loss, rel=1e-5, abs=1e-5)
        assert losses.answer == pytest.approx(whole.answer, rel=1e-5)
        assert losses.retained == pytest.approx(whole.retained, rel=1e-5)
        assert others.keys() == slopes.keys()
        scale = max(slope.abs().max().item() for slope in slopes.values())
        for key, slope in slopes.items():
            torch.testing.assert_close(others[key], slope, rtol=1e-4, atol=1e-5 * scale)


@every
def test_training_moves_the_adapter_and_nothing_else(name: str, options: dict[str, Any]) -> None:
    objective = bound(name, options)
    chosen = TrainingSettings(objective={}, learning_rate=1e-3, epochs=2, batch_size=4)
    with attached(BASE.model, LORA, seed=7) as adapted:
        facts = train(
            adapted,
            EXAMPLES,
            objective,
            chosen=chosen,
            pad_id=0,
            generator=generator(0),
            preferred=PREFERRED if objective.needs_preferred else (),
            retain=RETAIN if objective.needs_retain else (),
        )
        moved = [w for key, w in adapted.named_parameters() if "lora_B" in key]
        assert all(bool(weight.count_nonzero()) for weight in moved)
        assert all(layer.scaling["default"] == 2.0 for layer in lora_layers(adapted))
    assert facts.steps == 4
    assert facts.diverged_at_step is None
    assert fingerprint(BASE.model) == BASE.sha256


def lora_layers(model: torch.nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def logits_of(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return aligned_logits(model, collate(EXAMPLES[:2], pad_id=0))[0]


def test_with_its_adapter_off_the_model_is_the_one_it_started_from() -> None:
    bare = logits_of(BASE.model)
    with moved_adapter() as model:
        model.train()
        on = logits_of(model)
        with without_trained_adapter(model):
            off = logits_of(model)
            assert not model.training
        assert model.training
        assert torch.equal(logits_of(model), on)
    assert torch.equal(off, bare)
    assert not torch.allclose(on, bare)


def test_an_expert_adapter_stays_on() -> None:
    with moved_adapter() as model:
        expert_config = LoraConfig(r=2, target_modules=["v_proj"], init_lora_weights=False)
        model.add_adapter("expert", expert_config)  # type: ignore[operator]
        model.base_model.set_adapter(["default", "expert"])  # type: ignore[union-attr, operator]
        for key, weight in model.named_parameters():
            weight.requires_grad_("lora" in key and ".default." in key)
        both = logits_of(model)
        with without_trained_adapter(model):
            expert = logits_of(model)
        for layer in lora_layers(model):
            layer.scaling.update({"default": 0.0} if "default" in layer.scaling else {})
        torch.testing.assert_close(expert, logits_of(model), rtol=0, atol=0)
    assert not torch.allclose(expert, both)
    assert not torch.allclose(expert, logits_of(BASE.model))


def test_without_an_adapter_there_is_no_starting_model() -> None:
    with (
        pytest.raises(ValueError, match="no LoRA adapter is under training"),
        without_trained_adapter(BASE.model),
    ):
        pass


@pytest.mark.parametrize(("name", "passes"), [("npo", 1), ("dpo", 2), ("simnpo", 0)])
def test_reference_log_probabilities_are_computed_once(name: str, passes: int) -> None:
    """Runs of the model: references once; one a step for each answer; one look at the end."""
    objective, runs = bound(name, {}), []
    chosen = TrainingSettings(objective={}, epochs=3, batch_size=8)
    answers = 2 if objective.needs_preferred else 1
    with attached(BASE.model, LORA, seed=7) as adapted:
        handle = adapted.register_forward_hook(lambda *_: runs.append(1))
        train(
            adapted,
            EXAMPLES,
            objective,
            chosen=chosen,
            pad_id=0,
            generator=generator(0),
            preferred=PREFERRED if objective.needs_preferred else (),
        )
        handle.remove()
    assert len(runs) == passes + (3 + 1) * answers


def test_references_are_those_of_the_starting_model_in_the_middle_of_training() -> None:
    objective, sizes = bound("npo", {"beta": 1.0}), TrainingSettings(objective={}, batch_size=3)
    bare = sequence_log_probs(*aligned_logits(BASE.model, collate(EXAMPLES, pad_id=0)))
    with moved_adapter() as model:
        cut = data(objective, sizes)
        losses = Learner(model, objective, cut).learn(cut.parts(Step(range(8), [])))
        with torch.no_grad():
            now = sequence_log_probs(*aligned_logits(model, collate(EXAMPLES, pad_id=0)))
    expected = 2 * torch.log1p((now - bare).exp()).mean().item()
    assert losses.loss == pytest.approx(expected, rel=1e-4)
    assert losses.loss != pytest.approx(2 * torch.log(torch.tensor(2.0)).item(), rel=1e-3)


def test_the_teacher_does_not_move_with_its_student() -> None:
    """UnDIAL's loss at the start is the teacher's own; the adapter's state does not matter."""
    sizes = TrainingSettings(objective={}, batch_size=8)
    seen = []
    for seed in (3, 4):
        with moved_adapter(seed=seed) as model:
            objective = UnDIAL()
            cut = data(objective, sizes)
            learner = Learner(model, objective, cut)
            (part,) = cut.parts(Step(range(8), []))
            seen.append(learner._inputs(part))
    assert torch.equal(seen[0].reference_logits, seen[1].reference_logits)  # type: ignore[arg-type]
    assert not seen[0].reference_logits.requires_grad  # type: ignore[union-attr]
    assert not torch.equal(seen[0].logits, seen[1].logits)


def test_retained_records_go_round_and_leave_the_order_of_the_data_alone() -> None:
    sizes = TrainingSettings(objective={}, batch_size=2, gradient_accumulation=2)
    kept = data(bound("grad_diff", {}), sizes).epochs(generator(5))
    alone = data(bound("grad_ascent", {}), sizes).epochs(generator(5))
    orders, retained = [], []
    for _ in range(3):
        for step, plain in zip(next(kept), next(alone), strict=True):
            assert list(step.main) == list(plain.main)
            assert len(step.retain) == len(step.main)
            assert list(plain.retain) == []
            orders += step.main
            retained += step.retain
    assert sorted(orders) == sorted([*range(8)] * 3)
    rounds = [retained[start : start + 4] for start in range(0, 24, 4)]
    assert all(sorted(one) == [0, 1, 2, 3] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1


@pytest.mark.parametrize(
    ("name", "says"),
    [("dpo", "preferred answer to each of 8 examples, got 0"), ("grad_diff", "no retained")],
)
def test_a_pass_that_is_missing_is_said_before_the_first_step(name: str, says: str) -> None:
    with attached(BASE.model, LORA, seed=7) as adapted, pytest.raises(ValueError, match=says):
        train(
            adapted,
            EXAMPLES,
            bound(name, {}),
            chosen=TrainingSettings(objective={}),
            pad_id=0,
            generator=generator(0),
        )

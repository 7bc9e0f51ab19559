"""A training that diverges stops, keeps the last good adapter, and says so."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import Tensor

from fedunlearn.aggregation import MergeSettings, merge_summaries
from fedunlearn.data.encoding import encode_record
from fedunlearn.data.records import write_jsonl
from fedunlearn.errors import RunError
from fedunlearn.models.adapters import LoraSettings, attached, read_adapter
from fedunlearn.models.loading import LoadedModel
from fedunlearn.objectives import GradAscent, Objective, ObjectiveInputs, RetainNLL
from fedunlearn.roles import Role
from fedunlearn.seeding import generator
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.client_settings import ClientIdentity, ClientInstructions
from fedunlearn.training.fisher_pass import FisherSettings
from fedunlearn.training.learner import StepLosses
from fedunlearn.training.loop import TrainingFacts, TrainingSettings, train
from tests.pico import changed, pico_round
from tests.world import pocket_model, questions

BASE = pocket_model()
EXAMPLES = [encode_record(BASE.tokenizer, q, max_length=256) for q in questions(8)]
LORA = LoraSettings(rank=4, alpha=8, target_modules=("down_proj", "q_proj"))
Weights = dict[str, Tensor]


def run(
    objective: Objective, *, base: LoadedModel = BASE, **options: object
) -> tuple[TrainingFacts, Weights, list[Weights]]:
    """Facts, the adapter that is left, and the one after every step, from the fresh one on."""
    settings = {"objective": {}, "learning_rate": 1e-3, "batch_size": 4, **options}
    with attached(base.model, LORA, seed=7) as adapted:
        after = [copied(adapted)]
        facts = train(
            adapted,
            EXAMPLES,
            objective,
            chosen=TrainingSettings(**settings),  # type: ignore[arg-type]
            pad_id=0,
            generator=generator(0),
            progress=lambda *_: after.append(copied(adapted)),
        )
        return facts, copied(adapted), after


def copied(adapted: PeftModel) -> Weights:
    return {key: value.clone() for key, value in read_adapter(adapted).weights.items()}


def equal(one: Weights, other: Weights) -> bool:
    return all(torch.equal(one[key], other[key]) for key in one)


class BadAt(RetainNLL):
    """Spoils the loss of one call, counted from 1."""

    def __init__(self, call: int, spoil: Callable[[Tensor], Tensor]) -> None:
        self.calls = 0
        self.call = call
        self.spoil = spoil

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __call__(self, inputs: ObjectiveInputs) -> Tensor:
        self.calls += 1
        loss = super().__call__(inputs)
        return self.spoil(loss) if self.calls == self.call else loss


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_the_first_loss_that_is_not_finite_undoes_the_step_before_it(bad: float) -> None:
    facts, kept, after = run(BadAt(4, lambda loss: loss * bad), epochs=3)
    assert (facts.diverged_at_step, facts.steps, len(after)) == (4, 2, 4)
    assert equal(kept, after[2])
    assert not equal(kept, after[3])
    assert all(map(torch.isfinite, (torch.tensor(facts.first_loss), torch.tensor(facts.last_loss))))


def test_what_the_last_step_made_is_looked_at_too() -> None:
    """Two epochs of two steps: the fifth call is the look, which changes nothing when good."""
    facts, kept, after = run(BadAt(5, lambda loss: loss * float("nan")), epochs=2)
    assert (facts.diverged_at_step, facts.steps) == (5, 3)
    assert equal(kept, after[3])
    good, whole, after = run(BadAt(6, lambda loss: loss * float("nan")), epochs=2)
    assert (good.diverged_at_step, good.steps) == (None, 4)
    assert equal(whole, after[4])


def test_a_gradient_that_is_not_finite_keeps_the_weights_it_was_taken_at() -> None:
    class Steep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, loss: Tensor) -> Tensor:
            return loss.clone()

        @staticmethod
        def backward(ctx: object, slope: Tensor) -> Tensor:  # type: ignore[override]
            return slope * float("inf")

    facts, kept, after = run(BadAt(3, Steep.apply), epochs=2)
    assert (facts.diverged_at_step, facts.steps) == (3, 2)
    assert equal(kept, after[2])
    with pytest.raises(RunError, match="gradient is not finite at step 1"):
        run(BadAt(1, Steep.apply), epochs=2)


class Wrong(RetainNLL):
    """Goes up where it should go down, as with a rate that is too high."""

    def __call__(self, inputs: ObjectiveInputs) -> Tensor:
        return -super().__call__(inputs)


@pytest.mark.parametrize("objective", [GradAscent(), Wrong()], ids=["forget", "retain"])
def test_a_loss_out_of_bounds_leaves_the_last_adapter_within_them(objective: Objective) -> None:
    facts, kept, after = run(objective, epochs=20, learning_rate=0.03, diverged_at_loss=6.1)
    step = facts.diverged_at_step
    assert step is not None
    assert 2 < step < 40
    assert facts.steps == step - 2
    assert equal(kept, after[facts.steps])
    assert facts.answer_loss <= 6.1
    assert not facts.stopped_early


def test_a_retained_loss_out_of_bounds_counts_too() -> None:
    losses = StepLosses(loss=1.0, answer=1.0, retained=6.2)
    assert not losses.is_good(6.1)
    assert losses.is_good(6.3)
    assert losses.is_good(None)
    assert not StepLosses(loss=1.0, answer=1.0, retained=float("nan")).is_good(None)


def test_the_default_bound_ends_gradient_ascent_at_an_absurd_rate() -> None:
    """A head that is seventy times too large lets losses of any size occur."""
    loud = pocket_model()
    with torch.no_grad():
        loud.model.lm_head.weight.mul_(70)
    facts, kept, _ = run(GradAscent(), base=loud, epochs=50, learning_rate=0.03)
    assert facts.diverged_at_step is not None
    assert facts.steps < 100
    assert all(bool(weight.isfinite().all()) for weight in kept.values())
    assert facts.answer_loss < 50


def test_without_a_bound_only_finite_losses_are_asked_for() -> None:
    facts, _, _ = run(GradAscent(), epochs=20, learning_rate=0.03, diverged_at_loss=None)
    assert facts.diverged_at_step is None
    assert facts.answer_loss > 6.1


def test_divergence_before_anything_was_learned_is_an_error() -> None:
    with pytest.raises(RunError, match=r"nats per token at step 1, above diverged_at_loss \(1\)"):
        run(RetainNLL(), epochs=1, diverged_at_loss=1.0)
    with pytest.raises(RunError, match=r"not finite at step 2 .* lower the learning rate"):
        run(BadAt(2, lambda loss: loss * float("nan")), epochs=1)


@pytest.mark.parametrize(
    ("role", "objective"), [("forget", "grad_ascent"), ("retain", "retain_nll")]
)
def test_a_client_s_summary_says_it_and_can_be_merged(
    role: Role, objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = RetainNLL.__call__
    monkeypatch.setattr(RetainNLL, "__call__", lambda self, inputs: -right(self, inputs))
    rows: list[dict[str, object]] = [
        {"question": q.question, "answer": q.answer} for q in questions(8)
    ]
    write_jsonl(tmp_path / "data.jsonl", rows)
    high = TrainingSettings(
        objective={"name": objective},
        learning_rate=0.03,
        epochs=20,
        batch_size=4,
        diverged_at_loss=6.1,
    )
    summary = run_client_job(
        BASE,
        ClientIdentity(id="c-0", role=role, domain="towns", data=str(tmp_path / "data.jsonl")),
        ClientInstructions(
            seed=0, lora=LORA, forget=high, retain=high, fisher=FisherSettings(num_sequences=1)
        ),
    )
    step = summary.meta.training["diverged_at_step"]
    assert isinstance(step, int)
    warnings = merge_summaries([summary], MergeSettings(method="avg")).report.warnings
    expected = f"training of {role} client 'c-0' (towns) diverged at step {step}"
    assert any(warning.startswith(expected) for warning in warnings)


def test_only_clients_that_diverged_are_named() -> None:
    clients = pico_round()
    marked = [
        changed(one, training={"diverged_at_step": 9 if one.meta.client_id == "keep-0" else None})
        for one in clients
    ]
    (warning,) = merge_summaries(marked, MergeSettings(method="avg")).report.warnings
    assert "retain client 'keep-0' (general) diverged at step 9" in warning
    assert not merge_summaries(clients, MergeSettings(method="avg")).report.warnings

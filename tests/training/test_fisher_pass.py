"""The Fisher pass against a slow, obvious float64 computation."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from fedunlearn.data.encoding import IGNORED, Example, encode_record
from fedunlearn.errors import RunError
from fedunlearn.models.loading import fingerprint
from fedunlearn.training.fisher_pass import FisherSettings, estimate_fisher
from tests.world import checkpointed, pocket_model, questions

NAMES = ["model.layers.0.mlp.down_proj.weight", "model.layers.1.self_attn.q_proj.weight"]
BASE = pocket_model()
EXAMPLES = [encode_record(BASE.tokenizer, q, max_length=256) for q in questions(4)]


def slow_fisher(
    examples: list[Example], name: str, *, whole: bool, model: torch.nn.Module | None = None
) -> Tensor:
    """Mean over sequences of the squared gradient of the mean token loss, in float64."""
    model = model or pocket_model(dtype=torch.float64).model
    weight = model.get_parameter(name).requires_grad_()
    squares = []
    for example in examples:
        ids = torch.tensor([example.input_ids])
        logits = model(input_ids=ids).logits[0, :-1].double()
        targets = example.input_ids if whole else example.labels
        terms = [
            -logits[t - 1].log_softmax(-1)[targets[t]]
            for t in range(1, len(targets))
            if targets[t] != IGNORED
        ]
        (gradient,) = torch.autograd.grad(torch.stack(terms).mean(), weight)
        squares.append(gradient**2)
    return torch.stack(squares).mean(0)


@pytest.mark.parametrize("targets", ["sequence", "answer"])
def test_it_is_the_mean_of_squared_per_sequence_gradients(targets: str) -> None:
    chosen = FisherSettings(num_sequences=4, targets=targets)  # type: ignore[arg-type]
    fisher = estimate_fisher(BASE.model, EXAMPLES, NAMES, chosen=chosen)
    for name in NAMES:
        expected = slow_fisher(EXAMPLES, name, whole=targets == "sequence")
        assert fisher[name].dtype == torch.bfloat16
        torch.testing.assert_close(
            fisher[name].double(), expected, rtol=2**-7, atol=float(expected.max()) * 1e-6
        )


class TwoClassLine(torch.nn.Module):
    """Logits [w * x, 0]; x = +4 for token 0, -4 for token 1: gradients -2, +2 at w = 0."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.line.weight).requires_grad_(False)

    def forward(self, input_ids: Tensor, **_: object) -> SimpleNamespace:
        score = self.line((4.0 - 8.0 * input_ids.float()).unsqueeze(-1)).squeeze(-1)
        return SimpleNamespace(logits=torch.stack([score, torch.zeros_like(score)], dim=-1))


@pytest.mark.parametrize("num_sequences", [1, 2, 4])
def test_squares_do_not_cancel_where_gradients_do(num_sequences: int) -> None:
    pair = [Example((0, 0), (IGNORED, 0)), Example((1, 0), (IGNORED, 0))]
    chosen = FisherSettings(num_sequences=num_sequences, targets="answer")
    fisher = estimate_fisher(TwoClassLine(), pair, ["line.weight"], chosen=chosen)
    assert fisher["line.weight"].item() == 4.0


def test_fewer_examples_than_asked_for_cycle_in_the_data_s_order() -> None:
    fisher = estimate_fisher(
        BASE.model, EXAMPLES[:2], NAMES, chosen=FisherSettings(num_sequences=3)
    )
    expected = slow_fisher([EXAMPLES[0], EXAMPLES[1], EXAMPLES[0]], NAMES[0], whole=True)
    torch.testing.assert_close(
        fisher[NAMES[0]].double(), expected, rtol=2**-7, atol=float(expected.max()) * 1e-6
    )


@pytest.mark.parametrize("batch_size", [2, 3, 7, 100])
def test_the_batch_size_changes_rounding_only(batch_size: int) -> None:
    one, many = (
        estimate_fisher(
            BASE.model, EXAMPLES, NAMES, chosen=FisherSettings(num_sequences=7, batch_size=size)
        )
        for size in (1, batch_size)
    )
    for name in NAMES:
        largest = float(one[name].max())
        torch.testing.assert_close(many[name], one[name], rtol=2**-7, atol=largest * 1e-6)


def test_pads_change_nothing() -> None:
    """A sequence is worth the same beside one three times as long, pad id 0 being a real token."""
    long = Example(EXAMPLES[1].input_ids * 3, EXAMPLES[1].labels * 3)
    alone = [
        estimate_fisher(BASE.model, [one], NAMES, chosen=FisherSettings(num_sequences=1))
        for one in (EXAMPLES[0], long)
    ]
    both = estimate_fisher(
        BASE.model, [EXAMPLES[0], long], NAMES, chosen=FisherSettings(num_sequences=2)
    )
    for name in NAMES:
        mean = (alone[0][name].double() + alone[1][name].double()) / 2
        torch.testing.assert_close(
            both[name].double(), mean, rtol=2**-6, atol=float(mean.max()) * 1e-6
        )


def test_gradient_checkpointing_changes_no_entry() -> None:
    chosen, model = FisherSettings(num_sequences=3, batch_size=2), pocket_model().model
    plain = estimate_fisher(model, EXAMPLES, NAMES, chosen=chosen)
    passes: list[bool] = []
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: passes.append(True))
    model.train()  # transformers checkpoints in training mode only; this model has no dropout
    with checkpointed(model):
        saving = estimate_fisher(model, EXAMPLES, NAMES, chosen=chosen)
    assert len(passes) == 2 * 2, "two batches, each recomputed once"
    for name in NAMES:
        assert bool(plain[name].count_nonzero())
        torch.testing.assert_close(saving[name], plain[name], rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_a_bfloat16_model_is_within_2_percent_of_float64_at_its_own_weights(
    batch_size: int,
) -> None:
    """And the tenth of the entries that a merge keeps is the same but for 2 in 100."""
    model = pocket_model(dtype=torch.bfloat16).model
    exact = pocket_model(dtype=torch.bfloat16).model.double()
    chosen = FisherSettings(num_sequences=4, batch_size=batch_size)
    for name, value in estimate_fisher(model, EXAMPLES, NAMES, chosen=chosen).items():
        expected = slow_fisher(EXAMPLES, name, whole=True, model=exact)
        assert (value.double() - expected).norm() < 0.02 * expected.norm()
        kept, wanted = (
            set(one.flatten().topk(one.numel() // 10).indices.tolist())
            for one in (value.float(), expected)
        )
        assert len(kept & wanted) >= 0.98 * len(wanted)


def test_of_a_batch_that_is_not_finite_all_sequences_are_named() -> None:
    model = pocket_model().model
    with torch.no_grad():
        model.get_parameter(NAMES[0])[0, 0] = float("nan")
    chosen = FisherSettings(num_sequences=5, batch_size=3)
    with pytest.raises(RunError, match="is not finite at sequence 0 to 2"):
        estimate_fisher(model, EXAMPLES, NAMES, chosen=chosen)


def test_a_gradient_that_is_not_finite_is_named_and_the_model_frozen_again() -> None:
    model = pocket_model().model
    with torch.no_grad():
        model.get_parameter(NAMES[0])[0, 0] = float("nan")
    with pytest.raises(RunError, match=rf"Fisher of {NAMES[0]} is not finite at sequence 0"):
        estimate_fisher(model, EXAMPLES, NAMES, chosen=FisherSettings(num_sequences=1))
    assert not any(p.requires_grad for p in model.parameters())


def test_the_model_is_left_untouched_and_without_gradients() -> None:
    estimate_fisher(BASE.model, EXAMPLES, NAMES, chosen=FisherSettings(num_sequences=2))
    assert fingerprint(BASE.model) == BASE.sha256
    assert all(p.grad is None and not p.requires_grad for p in BASE.model.parameters())


def test_truncation_to_max_length() -> None:
    short = FisherSettings(num_sequences=1, max_length=9)
    cut = [Example(EXAMPLES[0].input_ids[:9], EXAMPLES[0].labels[:9])]
    long = FisherSettings(num_sequences=1)
    for name, value in estimate_fisher(BASE.model, EXAMPLES[:1], NAMES, chosen=short).items():
        assert torch.equal(value, estimate_fisher(BASE.model, cut, NAMES, chosen=long)[name])

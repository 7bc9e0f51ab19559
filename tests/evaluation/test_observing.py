"""One pass over a text, beside a slow one: no batch, no padding, float64."""

import pytest
import torch

from fedunlearn.evaluation import observing
from fedunlearn.evaluation.gradients import gradient_norms
from fedunlearn.evaluation.observing import Query, observe, query
from fedunlearn.evaluation.prompts import PromptSettings, scored
from fedunlearn.metrics import GradNorm, MinK, MinKPlusPlus, Observed
from fedunlearn.models.loading import LoadedModel, fingerprint
from tests.models.families import CONFIGS, random_model, tokenizer
from tests.oracles import evaluation as oracle
from tests.world import pocket_model, questions

NEAR = 1e-4
STYLE = PromptSettings(style="package")
BASE = pocket_model()
EXAMPLES = [scored(BASE.tokenizer, one.question, one.answer, STYLE) for one in questions(7)]
QUERIES = [query(one) for one in EXAMPLES]


def far(one: list[Observed], other: list[Observed]) -> float:
    """Largest difference of a log-probability."""
    pairs = zip(one, other, strict=True)
    return max(float((a.log_probs - b.log_probs).abs().max()) for a, b in pairs)


def test_every_statistic_is_the_slow_one_s() -> None:
    found = observe(BASE, QUERIES, batch_size=3, moments=True)
    for example, seen in zip(EXAMPLES, found, strict=True):
        start = example.labels.index(next(one for one in example.labels if one >= 0))
        targets = list(example.input_ids[start:])
        rows = oracle.token_log_probs(BASE.model, example.input_ids, start)
        own = [row[target] for row, target in zip(rows, targets, strict=True)]
        assert seen.log_probs.tolist() == pytest.approx(own, abs=NEAR)
        best = [row.index(max(row)) == target for row, target in zip(rows, targets, strict=True)]
        assert seen.greedy.tolist() == best
        standard = oracle.lowest(oracle.standardised(rows, targets)[:-1], 0.4)
        assert MinKPlusPlus()(seen) == pytest.approx(standard, abs=NEAR)
        assert MinK()(seen) == pytest.approx(oracle.lowest(own[:-1], 0.4), abs=NEAR)
        assert seen.text == BASE.tokenizer.decode(targets, skip_special_tokens=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_batches_padding_and_order_change_nothing(family: str) -> None:
    model = random_model(family)
    base = LoadedModel(model, tokenizer(), family, fingerprint(model))
    asked = [query(scored(base.tokenizer, one.question, one.answer, STYLE)) for one in questions(8)]
    alone = observe(base, asked, batch_size=1)
    assert far(alone, observe(base, asked, batch_size=8)) < NEAR
    assert far(alone, observe(base, asked, batch_size=8, padding="left")) < NEAR
    assert far(alone[::-1], observe(base, asked[::-1], batch_size=3, padding="left")) < NEAR


def test_blocks_of_the_vocabulary_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = observe(BASE, QUERIES, batch_size=4, moments=True)
    monkeypatch.setattr(observing, "_BLOCK", 1000)
    parts = observe(BASE, QUERIES, batch_size=4, moments=True)
    for one, other in zip(whole, parts, strict=True):
        assert torch.equal(one.log_probs, other.log_probs)
        assert torch.equal(one.variance, other.variance)


def test_only_positions_that_predict_a_target_reach_the_vocabulary() -> None:
    shapes = []
    handle = BASE.model.lm_head.register_forward_hook(  # type: ignore[union-attr]
        lambda _module, _inputs, output: shapes.append(output.shape)
    )
    try:
        observe(BASE, QUERIES[:1], batch_size=1)
    finally:
        handle.remove()  # type: ignore[operator]
    assert [shape[1] for shape in shapes] == [len(QUERIES[0].targets)]


def test_equal_queries_are_computed_once() -> None:
    calls = []
    handle = BASE.model.register_forward_hook(lambda *_: calls.append(1))
    try:
        found = observe(BASE, [QUERIES[0]] * 5, batch_size=1)
    finally:
        handle.remove()
    assert len(calls) == 1
    assert len(found) == 5


def test_one_position_may_be_asked_for_several_tokens() -> None:
    ids = QUERIES[0].input_ids
    (seen,) = observe(BASE, [Query(ids, (len(ids) - 1,) * 3, (7, 8, 9))], batch_size=1)
    (row,) = oracle.token_log_probs(BASE.model, [*ids, 7], len(ids))
    assert seen.log_probs.tolist() == pytest.approx(row[7:10], abs=NEAR)


def test_norms_of_gradients_are_the_slow_ones_and_leave_no_trace() -> None:
    example = EXAMPLES[0]
    start = example.labels.index(next(one for one in example.labels if one >= 0))
    norms = gradient_norms(BASE, example)
    expected = oracle.gradient_norm(BASE.model, example.input_ids, start)
    seen = Observed(torch.tensor([-1.0]), torch.tensor([True]), gradient_norms=norms)
    assert GradNorm()(seen) == pytest.approx(expected, rel=1e-4)
    assert all(one.grad is None and not one.requires_grad for one in BASE.model.parameters())
    assert fingerprint(BASE.model) == BASE.sha256

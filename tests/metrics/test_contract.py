"""What every entry of the registry of metrics keeps to."""

from pathlib import Path

import pytest
import torch

from fedunlearn.metrics import METRICS, Observed, TextMetric, TokenMetric
from fedunlearn.metrics.min_k import Lowest

DOC = (Path(__file__).parents[2] / "docs" / "EVALUATION.md").read_text(encoding="utf-8")


def observed(count: int = 6) -> Observed:
    draw = torch.Generator().manual_seed(3)
    log_probs = -torch.rand(count, generator=draw, dtype=torch.float64)
    return Observed(
        log_probs,
        torch.rand(count, generator=draw) > 0.5,
        log_probs - 0.1,
        torch.ones(count, dtype=torch.float64),
        "some text",
        torch.rand(4, generator=draw),
        0.5,
    )


@pytest.mark.parametrize("name", list(METRICS))
def test_an_entry_says_what_it_is(name: str) -> None:
    metric = METRICS.build(name, {})
    for text in (metric.definition, metric.source, metric.direction):
        assert text.strip()
    assert f"`{name}`" in DOC
    assert (type(metric).__doc__ or "").strip()


@pytest.mark.parametrize("name", [n for n in METRICS if issubclass(METRICS[n], TokenMetric)])
def test_a_score_of_tokens_is_finite_and_leaves_what_it_saw_alone(name: str) -> None:
    metric, seen = METRICS.build(name, {}), observed()
    assert isinstance(metric, TokenMetric)
    before = seen.log_probs.clone()
    first, again = metric(seen), metric(seen)
    assert first == again
    assert abs(first) < 1e6
    assert torch.equal(seen.log_probs, before)


@pytest.mark.parametrize("name", [n for n in METRICS if issubclass(METRICS[n], TextMetric)])
def test_a_score_of_texts_is_one_for_the_answer_itself_and_zero_for_none(name: str) -> None:
    metric = METRICS.build(name, {})
    assert isinstance(metric, TextMetric)
    assert metric("the lake is deep", "the lake is deep") == 1.0
    assert metric("", "the lake is deep") == 0.0


def test_a_text_that_is_better_known_scores_lower_in_every_attack() -> None:
    known, unknown = observed(), observed()
    unknown = Observed(
        known.log_probs - 1,
        known.greedy,
        known.mean,
        known.variance,
        known.text,
        known.gradient_norms + 1,
        known.reference_loss,
    )
    for name in ("loss", "zlib", "min_k", "min_k_plus_plus", "grad_norm", "reference"):
        metric = METRICS.build(name, {})
        assert isinstance(metric, TokenMetric)
        assert metric(known) < metric(unknown), name
    assert issubclass(METRICS["min_k"], Lowest)

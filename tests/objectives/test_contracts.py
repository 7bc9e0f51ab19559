"""What every entry of the registry keeps, with its defaults and with its options."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedunlearn.objectives import OBJECTIVES, Counts, ObjectiveInputs
from fedunlearn.objectives.likelihood import IGNORED
from fedunlearn.objectives.reduction import count
from tests.objectives.batches import CASES, bound, inputs, mapped
from tests.oracles import objectives as oracle

every = pytest.mark.parametrize(
    ("name", "options"), CASES, ids=[f"{name}-{options}" for name, options in CASES]
)
PADDED_BY = 2


def passes(batch: ObjectiveInputs) -> Iterator[ObjectiveInputs]:
    yield from filter(None, (batch, batch.preferred, batch.retain))


def gradients(loss: Tensor, batch: ObjectiveInputs) -> list[Tensor]:
    leaves = [
        leaf for one in passes(batch) for leaf in (one.logits, one.hidden) if leaf is not None
    ]
    found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return list(found)


def leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def test_the_oracles_cover_the_registry() -> None:
    assert set(oracle.ORACLES) == set(OBJECTIVES)
    assert {name for name, _ in CASES} == set(OBJECTIVES)


@every
def test_a_finite_float32_scalar(name: str, options: dict[str, Any]) -> None:
    loss = bound(name, options)(inputs())
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert bool(loss.isfinite())


@every
@given(seed=st.integers(0, 2**31), batch=st.integers(1, 4), length=st.integers(3, 7))
@settings(max_examples=10, deadline=None)
def test_loss_and_gradient_against_the_slow_float64_one(
    name: str, options: dict[str, Any], seed: int, batch: int, length: int
) -> None:
    objective, given = bound(name, options), inputs(seed=seed, batch=batch, length=length)
    expected = oracle.loss(name, with_settings(name, options), given)
    found = objective(given)
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)
    pairs = zip(gradients(found, given), gradients(expected, given), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


def with_settings(name: str, options: dict[str, Any]) -> Any:
    """The settings as the oracle reads them: RMU's with the direction that was drawn."""
    drawn = bound(name, options)
    return drawn if name == "rmu" else OBJECTIVES.build(name, options)


@every
@given(seed=st.integers(0, 2**31), order=st.permutations(range(3)))
@settings(max_examples=6, deadline=None)
def test_the_order_of_the_batch_does_not_matter(
    name: str, options: dict[str, Any], seed: int, order: list[int]
) -> None:
    objective, straight = bound(name, options), inputs(seed=seed)
    turned = mapped(straight, lambda _, tensor: tensor[order])
    torch.testing.assert_close(objective(straight), objective(turned), rtol=1e-5, atol=1e-5)


def padded(given: ObjectiveInputs, *, left: bool) -> ObjectiveInputs:
    """Every pass with pads of arbitrary content; one value a sequence stays as it is."""

    def change(field: str, tensor: Tensor) -> Tensor:
        if field == "reference_log_probs":
            return leaf(tensor)
        fill = {"labels": IGNORED, "token_mask": False}.get(field, 7.0)
        pads = torch.full_like(tensor[:, :1].detach(), fill).repeat_interleave(PADDED_BY, dim=1)
        return leaf(torch.cat([pads, tensor] if left else [tensor, pads], dim=1))

    return mapped(given, change)


@every
@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_pads_have_no_effect(name: str, options: dict[str, Any], left: bool) -> None:
    objective, plain = bound(name, options), inputs()
    longer = padded(plain, left=left)
    torch.testing.assert_close(objective(plain), objective(longer))
    pairs = zip(
        gradients(objective(plain), plain), gradients(objective(longer), longer), strict=True
    )
    for one, other in pairs:
        real = other[:, PADDED_BY:] if left else other[:, :-PADDED_BY]
        torch.testing.assert_close(one, real)
        assert other.count_nonzero() == real.count_nonzero()


@every
@given(seed=st.integers(0, 2**31), cut=st.integers(1, 5))
@settings(max_examples=6, deadline=None)
def test_parts_of_a_step_add_up_to_it(
    name: str, options: dict[str, Any], seed: int, cut: int
) -> None:
    """Whatever the denominators are: sequences or tokens, of the client's or retained data."""
    objective, whole = bound(name, options), inputs(seed=seed, batch=6)
    parts = [part(whole, rows) for rows in (slice(cut), slice(cut, None))]
    added = sum(objective(one) for one in parts)
    torch.testing.assert_close(added, objective(whole), rtol=1e-5, atol=1e-5)


def part(whole: ObjectiveInputs, rows: slice) -> ObjectiveInputs:
    def cut(one: ObjectiveInputs | None) -> ObjectiveInputs | None:
        if one is None:
            return None
        fields = {"preferred": cut(one.preferred), "retain": cut(one.retain)}
        counts = count(one.labels, one.token_mask)
        flat = replace(one, preferred=None, retain=None)
        return mapped(flat, lambda _, tensor: tensor[rows], counts=counts, **fields)

    found = cut(whole)
    assert found is not None
    return found


@every
def test_what_it_says_it_needs_is_what_it_reads(name: str, options: dict[str, Any]) -> None:
    """Left out what it does not ask for, the loss is the same; left out what it does, an error."""
    objective, full = bound(name, options), inputs()

    def lean(one: ObjectiveInputs, role: str) -> ObjectiveInputs:
        taught = role in objective.teaches
        return replace(
            one,
            hidden=one.hidden if objective.hidden_layer is not None else None,
            reference_log_probs=one.reference_log_probs if objective.needs_reference else None,
            reference_logits=one.reference_logits if taught else None,
            reference_hidden=one.reference_hidden if taught else None,
        )

    assert full.preferred is not None
    assert full.retain is not None
    least = replace(
        lean(full, objective.role),
        preferred=lean(full.preferred, objective.role) if objective.needs_preferred else None,
        retain=lean(full.retain, "retain") if objective.needs_retain else None,
    )
    assert torch.equal(objective(least), objective(full))
    asked = {
        "reference_log_probs": objective.needs_reference,
        "reference_logits": objective.role in objective.teaches,
        "preferred": objective.needs_preferred,
        "retain": objective.needs_retain,
        "hidden": objective.hidden_layer is not None,
    }
    for field in (field for field, needed in asked.items() if needed):
        with pytest.raises(ValueError, match="needs"):
            objective(replace(least, **{field: None}))


@every
def test_a_step_down_the_gradient_lowers_the_loss(name: str, options: dict[str, Any]) -> None:
    objective, given = bound(name, options), inputs()
    loss = objective(given)
    leaves = [x for one in passes(given) for x in (one.logits, one.hidden) if x is not None]
    slopes = gradients(loss, given)
    assert any(bool(slope.count_nonzero()) for slope in slopes)
    if name in ("satimp", "wga"):
        return  # their weights take no gradient, so their loss need not fall
    steepness = max(slope.norm() for slope in slopes)
    with torch.no_grad():
        for x, slope in zip(leaves, slopes, strict=True):
            x -= 0.1 * slope / steepness
    assert objective(afresh(given)) < loss


def afresh(given: ObjectiveInputs) -> ObjectiveInputs:
    """The same passes, without what was computed from their logits before."""
    others = {
        name: afresh(one) for name in ("preferred", "retain") if (one := getattr(given, name))
    }
    return replace(given, **others)


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if OBJECTIVES[name].role == "forget"])
def test_weights_scale_the_two_terms(name: str) -> None:
    given = inputs()
    terms = {"retain_term": "nll", "retain_reduction": "token"}
    once, twice = (bound(name, {**terms, "retain_weight": x})(given) for x in (1.0, 2.0))
    retained = twice - once
    forget = once - retained
    both = bound(name, {**terms, "forget_weight": 2.0, "retain_weight": 3.0})
    torch.testing.assert_close(both(given), 2 * forget + 3 * retained, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if OBJECTIVES[name].role == "forget"])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"forget_weight": 0.0}, "forget_weight must be > 0"),
        ({"retain_term": "nll", "retain_weight": -1.0}, "retain_weight must be >= 0"),
    ],
)
def test_weights_out_of_range_are_refused(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        OBJECTIVES[name](**options)


def test_counts_of_a_batch() -> None:
    labels = torch.tensor([[IGNORED, 4, 5], [IGNORED, 4, IGNORED]])
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    assert count(labels, mask) == Counts(sequences=2, targets=3, tokens=7)
    assert count(labels, mask).predicted == 5

"""Contracts that every objective keeps, and the golden values of each."""

import pytest
import torch
from torch import Tensor

from fedunlearn.objectives import NPO, OBJECTIVES, RMU, GradAscent, ObjectiveInputs, RetainNLL
from fedunlearn.objectives.likelihood import IGNORED, token_log_probs
from fedunlearn.seeding import generator


def inputs(batch: int = 3, *, seed: int = 0, shift: float = 0.0) -> ObjectiveInputs:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, 5, 11, generator=draw) + shift
    labels = torch.randint(11, (batch, 5), generator=draw)
    labels[:, 0] = IGNORED
    labels[0, 3:] = IGNORED
    return ObjectiveInputs(
        logits.requires_grad_(),
        labels,
        reference_log_probs=torch.randn(batch, generator=draw) - 9,
        hidden=torch.randn(batch, 6, 8, generator=draw),
        hidden_mask=torch.arange(6).expand(batch, 6) < torch.tensor([[4], [6], [5]])[:batch],
    )


def bound(name: str):  # type: ignore[no-untyped-def]
    return OBJECTIVES[name]().bind(generator(0, name), 8)


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_is_a_finite_float32_scalar(name: str) -> None:
    loss = bound(name)(inputs())
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert bool(loss.isfinite())


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_the_order_of_the_batch_does_not_matter(name: str) -> None:
    straight, turn = inputs(), torch.tensor([2, 0, 1])
    turned = ObjectiveInputs(
        straight.logits[turn],
        straight.labels[turn],
        straight.reference_log_probs[turn],  # type: ignore[index]
        straight.hidden[turn],  # type: ignore[index]
        straight.hidden_mask[turn],  # type: ignore[index]
    )
    torch.testing.assert_close(bound(name)(straight), bound(name)(turned))


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_pads_have_no_effect(name: str) -> None:
    plain = inputs()

    def padded(tensor: Tensor, fill: float) -> Tensor:
        return torch.cat([tensor, torch.full_like(tensor[:, :2], fill)], dim=1)

    longer = ObjectiveInputs(
        padded(plain.logits, 7.0),
        padded(plain.labels, IGNORED),
        plain.reference_log_probs,
        padded(plain.hidden, 99.0),  # type: ignore[arg-type]
        padded(plain.hidden_mask, False),  # type: ignore[arg-type]
    )
    torch.testing.assert_close(bound(name)(plain), bound(name)(longer))


def test_gradient_ascent_is_the_negated_retain_loss() -> None:
    assert GradAscent()(inputs()) == -RetainNLL()(inputs())


def test_retain_loss_against_torch_cross_entropy() -> None:
    batch = inputs()
    expected = torch.nn.functional.cross_entropy(
        batch.logits.double().flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED
    )
    torch.testing.assert_close(RetainNLL()(batch).double(), expected, rtol=1e-6, atol=1e-6)


def npo_inputs(log_probs: Tensor, reference: Tensor) -> ObjectiveInputs:
    """Two tokens a sequence over a two-word vocabulary, with the given summed log p."""
    each = log_probs / 2
    rest = torch.log1p(-each.exp())
    logits = torch.stack([each, rest], dim=-1)[:, None].expand(-1, 2, -1)
    return ObjectiveInputs(logits, torch.zeros(len(log_probs), 2, dtype=torch.long), reference)


def test_npo_at_the_reference_is_13_863() -> None:
    log_probs = torch.tensor([-4.0, -0.3])
    assert NPO(beta=0.1)(npo_inputs(log_probs, log_probs)).item() == pytest.approx(13.863, abs=1e-3)


def test_npo_uses_sums_of_token_log_probabilities() -> None:
    batch = inputs()
    total = token_log_probs(batch.logits, batch.labels).sum(-1).double()
    ratio = 0.1 * (total - batch.reference_log_probs.double())  # type: ignore[union-attr]
    expected = (2 / 0.1 * torch.log1p(ratio.exp())).mean()
    torch.testing.assert_close(NPO(beta=0.1)(batch).double(), expected, rtol=1e-5, atol=1e-5)


def test_npo_ignores_a_constant_added_to_all_logits() -> None:
    torch.testing.assert_close(NPO()(inputs()), NPO()(inputs(shift=5.0)), rtol=1e-5, atol=1e-5)


def test_npo_falls_with_the_answer_s_probability() -> None:
    reference = torch.tensor([-1.0])
    losses = [NPO()(npo_inputs(torch.tensor([x]), reference)).item() for x in (-1.0, -5.0, -50.0)]
    assert losses == sorted(losses, reverse=True)


def test_npo_without_a_reference_says_so() -> None:
    with pytest.raises(ValueError, match="starting model"):
        NPO()(ObjectiveInputs(torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.long)))
    with pytest.raises(ValueError, match="beta must be > 0"):
        NPO(beta=0.0)


def test_rmu_is_the_mean_square_distance_over_real_tokens() -> None:
    rmu = RMU(steering=2.0).bind(generator(4), 8)
    batch = inputs()
    target = rmu.target.double()
    assert target.norm().item() == pytest.approx(2.0)
    distances = [
        ((batch.hidden[b, s].double() - target) ** 2).mean()  # type: ignore[index]
        for b in range(3)
        for s in range(6)
        if batch.hidden_mask[b, s]  # type: ignore[index]
    ]
    expected = torch.stack(distances).mean()
    torch.testing.assert_close(rmu(batch).double(), expected, rtol=1e-6, atol=1e-6)


def test_rmu_direction_is_shared_by_the_domain_unless_asked() -> None:
    shared, own = RMU(), RMU(share="client")
    assert shared.seed_key("a", "bio") == shared.seed_key("b", "bio")
    assert own.seed_key("a", "bio") != own.seed_key("b", "bio")
    assert shared.seed_key("a", "bio") != shared.seed_key("a", "cyber")
    with pytest.raises(ValueError, match="bind it"):
        RMU()(inputs())

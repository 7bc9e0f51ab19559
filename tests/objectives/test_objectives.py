"""The golden values of each objective, and what tells one from another."""

import math

import pytest
import torch
from torch import Tensor

from fedunlearn.objectives import (
    DPO,
    NPO,
    RMU,
    WGA,
    GradAscent,
    GradDiff,
    ObjectiveInputs,
    RetainNLL,
    SatImp,
    SimNPO,
    UnDIAL,
)
from fedunlearn.objectives.likelihood import IGNORED, sequence_log_probs, token_log_probs
from fedunlearn.objectives.retain_terms import retain_kl
from fedunlearn.seeding import generator
from tests.objectives.batches import inputs


def shifted(by: float) -> ObjectiveInputs:
    plain = inputs()
    return ObjectiveInputs(plain.logits + by, plain.labels, plain.reference_log_probs)


def answers(
    log_probs: Tensor, reference: Tensor | None = None, *, length: int = 2
) -> ObjectiveInputs:
    """So many tokens a sequence over a two-word vocabulary, with the given summed log p."""
    each = log_probs / length
    rest = torch.log1p(-each.exp())
    logits = torch.stack([each, rest], dim=-1)[:, None].expand(-1, length, -1)
    labels = torch.zeros(len(log_probs), length, dtype=torch.long)
    return ObjectiveInputs(logits, labels, reference)


def test_gradient_ascent_is_the_negated_retain_loss() -> None:
    assert GradAscent(reduction="token")(inputs()) == -RetainNLL()(inputs())


def test_gradient_ascent_sums_over_tokens_and_averages_over_sequences() -> None:
    given = answers(torch.tensor([-8.0, -4.0]), length=4)
    assert GradAscent()(given).item() == pytest.approx(-6.0)
    assert GradAscent(reduction="token")(given).item() == pytest.approx(-1.5)


def test_gradient_difference_adds_the_retain_loss() -> None:
    both = ObjectiveInputs(
        *vars_of(answers(torch.tensor([-8.0, -4.0]), length=4)),
        retain=answers(torch.tensor([-3.0])),
    )
    assert GradDiff()(both).item() == pytest.approx(-6.0 + 3.0)
    assert GradDiff(forget_weight=0.5, retain_weight=2.0)(both).item() == pytest.approx(3.0)
    tokens = GradDiff(reduction="token", retain_reduction="token")
    assert tokens(both).item() == pytest.approx(-1.5 + 1.5)


def vars_of(given: ObjectiveInputs) -> tuple[Tensor, Tensor]:
    return given.logits, given.labels


def test_retain_loss_against_torch_cross_entropy() -> None:
    batch = inputs()
    expected = torch.nn.functional.cross_entropy(
        batch.logits.double().flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED
    )
    torch.testing.assert_close(RetainNLL()(batch).double(), expected, rtol=1e-6, atol=1e-6)


def test_npo_at_the_reference_is_13_863() -> None:
    log_probs = torch.tensor([-4.0, -0.3])
    assert NPO(beta=0.1)(answers(log_probs, log_probs)).item() == pytest.approx(13.863, abs=1e-3)


def test_npo_uses_sums_of_token_log_probabilities() -> None:
    batch = inputs()
    total = token_log_probs(batch.logits, batch.labels).sum(-1).double()
    ratio = 0.1 * (total - batch.reference_log_probs.double())  # type: ignore[union-attr]
    expected = (2 / 0.1 * torch.log1p(ratio.exp())).mean()
    torch.testing.assert_close(NPO(beta=0.1)(batch).double(), expected, rtol=1e-5, atol=1e-5)


def test_npo_ignores_a_constant_added_to_all_logits() -> None:
    torch.testing.assert_close(NPO()(shifted(0.0)), NPO()(shifted(5.0)), rtol=1e-5, atol=1e-5)


def test_npo_falls_with_the_answer_s_probability() -> None:
    reference = torch.tensor([-1.0])
    losses = [NPO()(answers(torch.tensor([x]), reference)).item() for x in (-1.0, -5.0, -50.0)]
    assert losses == sorted(losses, reverse=True)


def test_npo_without_a_reference_says_so() -> None:
    with pytest.raises(ValueError, match="starting model"):
        NPO()(ObjectiveInputs(torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.long)))
    with pytest.raises(ValueError, match="beta must be > 0"):
        NPO(beta=0.0)


def pairs(won: float, lost: float) -> ObjectiveInputs:
    """Preferred answer and answer, with log-ratios to a starting model at log p = -1 and -2."""
    preferred = answers(torch.tensor([won - 1.0]), torch.tensor([-1.0]))
    main = answers(torch.tensor([lost - 2.0]), torch.tensor([-2.0]))
    return ObjectiveInputs(main.logits, main.labels, main.reference_log_probs, preferred=preferred)


def test_dpo_with_and_without_two_over_beta() -> None:
    assert DPO()(pairs(0.0, 0.0)).item() == pytest.approx(math.log(2))
    scaled = DPO(two_over_beta=True)(pairs(0.0, 0.0)).item()
    assert scaled == pytest.approx(13.863, abs=1e-3)
    expected = math.log(1 + math.exp(-0.1 * (-0.5 - -3.0)))
    assert DPO()(pairs(-0.5, -3.0)).item() == pytest.approx(expected, rel=1e-5)


def test_dpo_falls_as_the_refusal_gains_and_as_the_answer_loses() -> None:
    start, gained, lost = (DPO()(pairs(*x)).item() for x in ((-0.5, 0.5), (0.5, 0.5), (-0.5, -5.0)))
    assert gained < start
    assert lost < start


@pytest.mark.parametrize(
    ("options", "value"),
    [({}, 0.00537), ({"gamma": 1.0}, 0.0145), ({"gamma": 1.0, "margin": "inside"}, 0.0631)],
)
def test_simnpo_s_margin_stands_outside_beta_s_bracket(
    options: dict[str, object], value: float
) -> None:
    given = answers(torch.tensor([-8.0]), length=4)
    loss = SimNPO(beta=2.5, **options)(given).item()  # type: ignore[arg-type]
    assert loss == pytest.approx(value, rel=5e-3)


def test_undial_averages_over_answers_only_and_demotes_their_tokens_only() -> None:
    """The teacher's 2 against 0 becomes even; a student that is even pays log 2 a token."""
    teacher = torch.tensor([[[5.0, -3.0], [2.0, 0.0], [2.0, 0.0]]])
    labels = torch.tensor([[IGNORED, 0, 0]])
    given = ObjectiveInputs(
        torch.zeros(1, 3, 2),
        labels,
        token_mask=torch.ones(1, 4, dtype=torch.bool),
        reference_logits=teacher,
    )
    assert UnDIAL(strength=2.0)(given).item() == pytest.approx(2 * math.log(2))
    assert UnDIAL(strength=2.0, reduction="token")(given).item() == pytest.approx(math.log(2))
    over_all = UnDIAL(strength=2.0, positions="all", reduction="token")
    assert over_all(given).item() == pytest.approx(math.log(2))
    prompt_moved = given.logits.clone()
    prompt_moved[:, 0] = torch.tensor([-5.0, 3.0])
    moved = ObjectiveInputs(
        prompt_moved, labels, token_mask=given.token_mask, reference_logits=teacher
    )
    assert UnDIAL(strength=2.0)(moved) == UnDIAL(strength=2.0)(given)
    assert over_all(moved) > over_all(given)


def test_undial_leaves_its_teacher_as_it_was() -> None:
    given = inputs()
    before = given.reference_logits.clone()  # type: ignore[union-attr]
    UnDIAL()(given)
    assert torch.equal(before, given.reference_logits)  # type: ignore[arg-type]


def test_weights_of_satimp_and_wga() -> None:
    """Two tokens of probability 1/2: w = 1/4 and 1/2, each times log 1/2."""
    half = answers(torch.tensor([2 * math.log(0.5)]))
    assert SatImp(beta1=1.0, beta2=1.0)(half).item() == pytest.approx(2 * 0.25 * math.log(0.5))
    assert SatImp()(half).item() == pytest.approx(2 * 0.5**6 * math.log(0.5))
    assert WGA()(half).item() == pytest.approx(2 * 0.5 * math.log(0.5))
    assert WGA(beta=0.0)(inputs()) == GradAscent()(inputs())


@pytest.mark.parametrize("objective", [SatImp(beta1=1.0), WGA()], ids=["satimp", "wga"])
def test_weights_take_no_gradient(objective: SatImp | WGA) -> None:
    """The slope is w times that of log p, here with p = 1/2: not that of w log p."""
    logits = torch.zeros(1, 1, 2, requires_grad=True)
    objective(ObjectiveInputs(logits, torch.tensor([[0]]))).backward()
    weight = 0.25 if isinstance(objective, SatImp) else 0.5
    torch.testing.assert_close(logits.grad, weight * torch.tensor([[[0.5, -0.5]]]))


def test_satimp_of_certain_tokens_is_finite() -> None:
    certain = ObjectiveInputs(torch.tensor([[[90.0, -90.0]]]), torch.tensor([[0]]))
    assert SatImp(beta2=0.5)(certain).item() == 0.0


def test_kl_is_zero_at_the_starting_model_and_positive_elsewhere() -> None:
    given = inputs()
    same = ObjectiveInputs(given.logits, given.labels, reference_logits=given.logits.detach())
    assert retain_kl(same, "sequence").item() == pytest.approx(0.0, abs=1e-6)
    assert retain_kl(given, "sequence").item() > 0


def test_kl_of_a_coin_known_by_heart() -> None:
    """KL((3/4, 1/4) || (1/2, 1/2)) = 3/4 log 3/2 + 1/4 log 1/2, from the starting model."""
    given = ObjectiveInputs(
        torch.zeros(1, 1, 2),
        torch.tensor([[1]]),
        reference_logits=torch.tensor([[[math.log(3.0), 0.0]]]),
    )
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert retain_kl(given, "token").item() == pytest.approx(expected, rel=1e-5)


def test_labels_that_are_no_target_never_index_the_vocabulary() -> None:
    given = inputs()
    assert int((given.labels == IGNORED).sum()) > 0
    assert bool(sequence_log_probs(given.logits, given.labels).isfinite().all())
    assert not token_log_probs(given.logits, given.labels)[given.labels == IGNORED].any()


def test_rmu_is_the_mean_square_distance_over_real_tokens() -> None:
    rmu = RMU(steering=2.0).bind(generator(4), 8)
    batch = inputs()
    target = rmu.target.double()
    assert target.norm().item() == pytest.approx(2.0)
    distances = [
        ((batch.hidden[b, s].double() - target) ** 2).mean()  # type: ignore[index]
        for b in range(3)
        for s in range(6)
        if batch.token_mask[b, s]  # type: ignore[index]
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

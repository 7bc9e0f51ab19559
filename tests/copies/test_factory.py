"""Publishing, undoing, noise levels and what the report is told."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from fedunlearn.copies import (
    CopyFactory,
    CopyPlan,
    CopySettings,
    PrivacySettings,
    RoundSecret,
    digest,
    noised_baseline,
)
from fedunlearn.errors import InputError
from fedunlearn.tensors.low_rank import task_vector
from tests.copies.models import CONFIGS, moved, parameters, plan_of, shared_model

SECRET = RoundSecret.from_seed(3)


def setting(name: str = "llama") -> tuple[CopyPlan, dict[str, Tensor], dict[str, Tensor]]:
    model = shared_model(name, "4/4")
    weights = parameters(model)
    return plan_of(model), weights, moved(weights, by=0.02)


def factory(name: str = "llama", *, server_round: int = 1, **options: Any) -> CopyFactory:
    plan, weights, reference = setting(name)
    chosen = CopySettings(**options)
    return CopyFactory(plan, chosen, weights, reference, SECRET, server_round=server_round)


def noise_of(made: CopyFactory, copy: int) -> dict[str, Tensor]:
    return {name: made.noised(copy, name) - made.weights[name] for name in made.plan.shapes}


@pytest.mark.parametrize("m", [2, 3])
def test_noise_over_alpha_sums_to_zero(m: int) -> None:
    made = factory(m=m)
    noises = [noise_of(made, copy) for copy in range(1, m + 1)]
    for name, weight in made.weights.items():
        base = [
            noise[name] / alpha for noise, alpha in zip(noises, made.settings.scales, strict=True)
        ]
        rounding = m * float(weight.abs().max() + 1) * torch.finfo(torch.float32).eps
        assert float(sum(base).abs().max()) <= rounding  # type: ignore[union-attr]
        assert float(base[0].abs().max()) > 50 * rounding


def test_noise_has_the_block_s_standard_deviation() -> None:
    """It is kappa * RMS(theta - reference) over all of a block (eq. 3), times alpha (eq. 5)."""
    made = factory(kappa=0.1)
    _, weights, reference = setting()
    for copy in (1, 2):
        noise, facts = noise_of(made, copy), made.facts(copy)
        for block, names in made.plan.blocks.items():
            task = torch.cat([(weights[n] - reference[n]).flatten().double() for n in names])
            expected = 0.1 * task.square().mean().sqrt().item()
            assert facts.sigma[block] == pytest.approx(expected, rel=1e-6)
            drawn = torch.cat([noise[name].flatten() for name in names]).double()
            spread = 5 / (2 * drawn.numel()) ** 0.5
            assert drawn.std().item() == pytest.approx(expected * copy, rel=spread)
            assert facts.effective_sigma[block] == pytest.approx(expected * copy, rel=2 * spread)


def test_what_is_published_is_the_noised_weight_under_t() -> None:
    made = factory("phi3")
    published = dict(made.publish(2))
    assert list(published) == list(made.plan.shapes)
    for name, back in made.undo(2, published):
        torch.testing.assert_close(back, made.noised(2, name), atol=2e-6, rtol=0)


def test_rounds_and_copies_are_independent_and_repeat() -> None:
    published = {
        (server_round, copy): digest(factory(server_round=server_round).publish(copy))
        for server_round in (1, 2)
        for copy in (1, 2)
    }
    assert len(set(published.values())) == 4
    assert digest(factory().publish(1)) == published[1, 1]


def test_the_digest_is_over_names_dtypes_and_bytes() -> None:
    ones = torch.ones(2)
    same = digest([("a", ones)])
    assert same == digest({"a": ones.clone()}.items())
    assert len(same) == 64
    for other in (("b", ones), ("a", ones.bfloat16()), ("a", ones * 2), ("a", ones[None])):
        assert digest([other]) != same


@pytest.mark.parametrize("threads", [2, 3])
def test_bits_do_not_depend_on_threads(threads: int) -> None:
    before = torch.get_num_threads()
    alone = digest(factory("gpt-neox").publish(1))
    try:
        torch.set_num_threads(threads)
        assert digest(factory("gpt-neox").publish(1)) == alone
    finally:
        torch.set_num_threads(before)


def test_kappa_0_means_no_noise_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    plan, weights, _ = setting()
    with caplog.at_level(logging.INFO):
        made = CopyFactory(plan, CopySettings(kappa=0), weights, None, SECRET, server_round=1)
    assert "kappa is 0: copies get no noise" in caplog.text
    assert made.facts(1).unchanged == 1.0
    assert set(made.facts(1).exact) == set(weights)
    assert all(torch.equal(made.noised(2, name), weights[name]) for name in weights)


def test_a_zero_task_vector_means_no_noise_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    plan, weights, reference = setting()
    some = {**reference, "model.embed_tokens.weight": weights["model.embed_tokens.weight"]}
    with caplog.at_level(logging.WARNING):
        made = CopyFactory(plan, CopySettings(), weights, some, SECRET, server_round=1)
    assert "equal the reference model's in embeddings: no noise there" in caplog.text
    assert made.facts(1).exact == ("model.embed_tokens.weight",)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        CopyFactory(plan, CopySettings(), weights, weights, SECRET, server_round=1)
    assert "in every block: no noise there" in caplog.text


def test_the_reference_must_be_there_and_fit() -> None:
    plan, weights, reference = setting()
    for wrong, text in [
        (None, "no.* there is none; name one, or set kappa=0"),
        ({}, "the reference model has no 'model.embed_tokens.weight'"),
        ({**reference, "model.norm.weight": torch.ones(3)}, r"shape \(3,\), the model's \(32,\)"),
    ]:
        with pytest.raises(InputError, match=text):
            CopyFactory(plan, CopySettings(), weights, wrong, SECRET, server_round=1)


def test_weights_must_fit_the_plan() -> None:
    plan, weights, reference = setting()
    lacking = {name: weight for name, weight in weights.items() if "norm" not in name}
    integers = {**weights, "model.norm.weight": torch.ones(32, dtype=torch.int64)}
    for wrong, text in [
        (lacking, "the weights lack 5 parameters, e.g. 'model.layers.0.input_layernorm.weight'"),
        ({**weights, "x": torch.ones(1)}, "'x' is no parameter of the copies"),
        ({**weights, "model.norm.weight": torch.ones(3)}, r"shape \(3,\), expected \(32,\)"),
        (integers, "is torch.int64; copies need floating point"),
    ]:
        with pytest.raises(InputError, match=text):
            CopyFactory(plan, CopySettings(), wrong, reference, SECRET, server_round=1)


def test_a_state_dict_with_tied_weights_publishes_one_tensor() -> None:
    model = shared_model("smollm", "4/4")
    plan, state = plan_of(model), dict(model.state_dict())
    assert "lm_head.weight" in state
    reference = moved(state, by=0.02)
    made = CopyFactory(plan, CopySettings(), state, reference, SECRET, server_round=1)
    assert "lm_head.weight" not in dict(made.publish(1))
    state["lm_head.weight"] = state["lm_head.weight"] + 1
    with pytest.raises(InputError, match=r"ties 'lm_head\.weight' to .* but their values differ"):
        CopyFactory(plan, CopySettings(), state, reference, SECRET, server_round=1)


def test_perturb_names_what_gets_noise() -> None:
    made = factory(perturb=("*.mlp.*", "*embed*"))
    changed = {name for name, noise in noise_of(made, 1).items() if noise.abs().max() > 0}
    assert changed == {name for name in made.plan.shapes if ".mlp." in name or "embed" in name}
    assert set(made.facts(1).exact) == made.plan.shapes.keys() - changed
    with pytest.raises(InputError, match=r"perturb: '\*\.ffn\.\*' matches no parameter"):
        factory(perturb=("*.ffn.*",))


def test_by_default_nothing_is_published_exactly() -> None:
    assert factory().facts(1).exact == ()


def test_bfloat16_that_swallows_the_noise_is_refused() -> None:
    """Weights of sd 0.25 with noise of sd 2e-5: bfloat16 keeps 8 bits of a weight's 24."""
    with pytest.raises(InputError, match=r"rounding to bfloat16 leaves 9\d% .* copy 1 as if"):
        factory(publish_dtype="bfloat16", kappa=0.001)
    made = factory(publish_dtype="bfloat16", kappa=0.001, max_unchanged=1.0)
    published = dict(made.publish(1))
    assert {tensor.dtype for tensor in published.values()} == {torch.bfloat16}
    assert made.facts(1).to_json()["unchanged"] == made.facts(1).unchanged
    same = sum(
        int((made.noised(1, name).bfloat16() == made.weights[name].bfloat16()).sum())
        for name in made.plan.shapes
    )
    entries = sum(weight.numel() for weight in made.weights.values())
    assert made.facts(1).unchanged == pytest.approx(same / entries, abs=0.01)


def test_the_trap_of_bfloat16_in_figures() -> None:
    """Weights of sd 0.02 held in bfloat16, noise of sd 1e-5: 88% of the entries are unchanged."""
    draw = torch.Generator().manual_seed(0)
    plan, weights, _ = setting()
    weights = {
        name: (torch.randn(weight.shape, generator=draw) * 0.02).bfloat16()
        for name, weight in weights.items()
    }
    reference = {name: weight.float() - 1e-3 for name, weight in weights.items()}
    chosen = CopySettings(publish_dtype="bfloat16", max_unchanged=1.0)
    made = CopyFactory(plan, chosen, weights, reference, SECRET, server_round=1)
    assert made.facts(1).sigma["layer 0"] == pytest.approx(1e-5, rel=1e-3)
    assert made.facts(1).unchanged == pytest.approx(0.88, abs=0.01)


def test_privacy_calibrates_the_least_noised_copy() -> None:
    private = PrivacySettings(epsilon=1.0, delta=1e-5, sensitivity=0.01)
    plan, weights, _ = setting()
    chosen = CopySettings(m=3, alphas=(2.0, 1.5, 3.0), privacy=private)
    made = CopyFactory(plan, chosen, weights, None, SECRET, server_round=1)
    drawn = torch.cat([noise.flatten() for noise in noise_of(made, 2).values()])
    assert drawn.std().item() == pytest.approx(private.sigma, rel=0.02)


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("symmetry", ["full", "paper"])
def test_undoing_factors_is_undoing_the_dense_displacement(name: str, symmetry: Any) -> None:
    """Adapters on every matrix: fused projections, Conv1D, embeddings and the head too."""
    made = factory(name, symmetry=symmetry)
    draw = torch.Generator().manual_seed(1)
    factors, dense, transposed = {}, {}, {}
    for key, parameter in made.plan.parameters.items():
        if len(parameter.shape) == 2:
            module = key.removesuffix(".weight")
            transposed[key] = parameter.transposed
            outputs, inputs = parameter.shape[::-1] if parameter.transposed else parameter.shape
            A = torch.randn(3, inputs, generator=draw)
            B = torch.randn(outputs, 3, generator=draw)
            factors[module] = A, B
            dense[key] = task_vector(A, B, 0.5, transposed=parameter.transposed)
    kept = {module: (A.clone(), B.clone()) for module, (A, B) in factors.items()}
    expected = dict(made.undo(2, dense))
    undone = made.undo_lora(2, factors)
    assert undone.keys() == factors.keys()
    for module, (A, B) in undone.items():
        key = f"{module}.weight"
        back = task_vector(A, B, 0.5, transposed=transposed[key])
        torch.testing.assert_close(back, expected[key], atol=1e-5, rtol=1e-5)
        assert all(map(torch.equal, kept[module], factors[module]))


def test_adapters_that_cannot_be_undone_are_refused() -> None:
    made = factory("smollm")
    pair = torch.ones(2, 32), torch.ones(96, 2)
    for module, (A, B), text in [
        ("lm_head", pair, "'lm_head' is tied to 'model.embed_tokens.weight'"),
        ("model.layers.0.mlp.router", pair, "router.weight' is no parameter of the copies"),
        ("model.norm", pair, "do not fit its weight"),
        ("model.layers.0.self_attn.q_proj", pair, r"B \(96, 2\) do not fit its weight of \(32, 32"),
    ]:
        with pytest.raises(InputError, match=text):
            made.undo_lora(1, {module: (A, B)})


def test_undo_refuses_what_is_not_in_the_plan() -> None:
    made = factory()
    with pytest.raises(InputError, match="'x' is no parameter of the copies"):
        dict(made.undo(1, {"x": torch.ones(1)}))
    with pytest.raises(InputError, match=r"'model\.norm\.weight' has shape \(3,\)"):
        dict(made.undo(1, {"model.norm.weight": torch.ones(3)}))
    for copy in (0, 3):
        with pytest.raises(InputError, match=f"there is no copy {copy}; copies are 1 to 2"):
            next(made.publish(copy))


def test_the_noised_baseline_has_the_mean_alphas_noise() -> None:
    plan, weights, reference = setting()
    made = dict(noised_baseline(plan, CopySettings(), weights, reference, SECRET, server_round=1))
    sigmas = factory().facts(1).sigma
    for block, names in plan.blocks.items():
        drawn = torch.cat([(made[name] - weights[name]).flatten() for name in names])
        spread = 5 / (2 * drawn.numel()) ** 0.5
        assert drawn.std().item() == pytest.approx(1.5 * sigmas[block], rel=spread)

"""The harmonic mean: its value, and that nothing missing, doubled or damaged is averaged over."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.copies import HarmonicFactors, HarmonicMean
from fedunlearn.errors import InputError, RunError
from tests.copies.models import plan_of, shared_model

SHAPES = {"w": (2,), "b": ()}


def full(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((2,), value), "b": torch.tensor(value)}


def test_alphas_1_and_2_with_updates_3_and_6_give_4() -> None:
    mean = HarmonicMean((1, 2), SHAPES)
    mean.add(2, full(6.0))
    mean.add(1, iter(full(3.0).items()))
    assert mean.result()["w"].tolist() == [4.0, 4.0]
    assert mean.result()["b"].item() == 4.0


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 5), st.integers(0, 2**31))
def test_the_plain_formula_in_float64(m: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    alphas = (torch.rand(m, generator=draw, dtype=torch.float64) * 3 + 0.1).tolist()
    updates = torch.randn(m, 7, generator=draw)
    mean = HarmonicMean(alphas, {"w": (7,)})
    for copy in torch.randperm(m, generator=draw).tolist():
        mean.add(copy + 1, {"w": updates[copy]})
    inverse = 1 / torch.tensor(alphas, dtype=torch.float64)
    expected = (inverse[:, None] * updates.double()).sum(0) / inverse.sum()
    torch.testing.assert_close(mean.result()["w"].double(), expected, atol=1e-5, rtol=1e-5)


def test_clients_of_a_copy_are_averaged_by_weight() -> None:
    mean = HarmonicMean((1, 1), SHAPES, clients={"a": 3, "b": 1})
    for copy in (1, 2):
        mean.add(copy, full(4.0), client="a")
        mean.add(copy, full(8.0), client="b")
    assert mean.result()["w"].tolist() == [5.0, 5.0]


def test_a_single_copy_is_refused() -> None:
    with pytest.raises(InputError, match="m must be at least 2"):
        HarmonicMean((1,), SHAPES)


def test_a_missing_copy_is_named() -> None:
    mean = HarmonicMean((1, 2), SHAPES, clients={"a": 1, "b": 1})
    mean.add(1, full(1.0), client="a")
    mean.add(2, full(1.0), client="a")
    mean.add(2, full(1.0), client="b")
    with pytest.raises(RunError, match="lacks copy 1 of client 'b'; without all copies"):
        mean.result()


def test_a_copy_counts_once() -> None:
    mean = HarmonicMean((1, 2), SHAPES)
    mean.add(1, full(1.0))
    with pytest.raises(RunError, match="copy 1 of client 'client' is in already"):
        mean.add(1, full(1.0))
    with pytest.raises(InputError, match="no displacement of copy 3 is due from client 'client'"):
        mean.add(3, full(1.0))
    mean.add(2, full(1.0))
    assert mean.result()["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"w": torch.ones(2)}, "lacks 1 tensors, e.g. 'b'"),
        ({**full(1.0), "x": torch.ones(1)}, "unexpected tensor 'x'"),
        ([("w", torch.ones(2)), ("w", torch.ones(2))], "'w'; it is there twice"),
        ({"w": torch.ones(3), "b": torch.tensor(1.0)}, r"shape \(3,\), expected \(2,\)"),
        ({"w": torch.tensor([1.0, float("nan")]), "b": torch.tensor(1.0)}, "'w' has entries"),
        ({"w": torch.ones(2), "b": torch.tensor(float("inf"))}, "'b' has entries"),
    ],
)
def test_damage_spoils_the_average_and_says_so(bad: Any, text: str) -> None:
    mean = HarmonicMean((1, 2), SHAPES)
    with pytest.raises(InputError, match=text):
        mean.add(1, bad)
    with pytest.raises(RunError, match="copy 1 of client 'client' broke off half way"):
        mean.add(2, full(1.0))
    with pytest.raises(RunError, match="broke off"):
        mean.result()


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_products_average_like_dense_displacements(name: str) -> None:
    plan = plan_of(shared_model(name, "4/4"))
    modules = [
        key.removesuffix(".weight")
        for key, parameter in plan.parameters.items()
        if parameter.actions and len(parameter.shape) == 2
    ]
    draw = torch.Generator().manual_seed(0)
    low, dense = (
        HarmonicFactors((1, 2), plan),
        HarmonicMean(
            (1, 2), {f"{module}.weight": plan.shapes[f"{module}.weight"] for module in modules}
        ),
    )
    for copy in (1, 2):
        factors, updates = {}, {}
        for module in modules:
            parameter = plan.parameters[f"{module}.weight"]
            outputs, inputs = parameter.shape[::-1] if parameter.transposed else parameter.shape
            A = torch.randn(3, inputs, generator=draw)
            B = torch.randn(outputs, 3, generator=draw)
            update = 0.5 * B @ A
            factors[module] = A, B
            updates[f"{module}.weight"] = update.T if parameter.transposed else update
        low.add(copy, factors, scaling=0.5)
        dense.add(copy, updates)
    for key, product in low.result().items():
        torch.testing.assert_close(product.dense(), dense.result()[key], atol=1e-5, rtol=1e-5)
        assert product.left.shape[1] == 6


def test_adapters_must_cover_the_same_modules() -> None:
    plan = plan_of(shared_model("llama"))
    q, k = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj"
    pair = torch.ones(2, 48), torch.ones(48, 2)
    mean = HarmonicFactors((1, 2), plan)
    mean.add(1, {q: pair}, scaling={q: 1.0})
    with pytest.raises(InputError, match=f"does not adapt the modules of the others, e.g. '{k}'"):
        mean.add(2, {q: pair, k: (torch.ones(2, 48), torch.ones(16, 2))}, scaling=1.0)
    broken = HarmonicFactors((1, 2), plan)
    with pytest.raises(InputError, match="not finite"):
        broken.add(1, {q: (pair[0] * float("nan"), pair[1])}, scaling=1.0)

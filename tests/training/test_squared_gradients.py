"""The one-pass squares against batches of one, by autograd, in float64."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from transformers.pytorch_utils import Conv1D

from fedunlearn.errors import InputError, RunError
from fedunlearn.tensors import squared_products
from fedunlearn.training.squared_gradients import squared_gradients

Checkpointing = Literal["off", "reentrant", "plain"]
NAMES = ["again.weight", "below.weight", "conv.weight", "one.weight"]


class Net(nn.Module):
    """A causal network over token ids with every way a weight can be used.

    ``again`` runs twice a forward pass; ``one`` and ``two`` share their weight; ``conv`` stores
    its weight as (d_in, d_out).
    """

    def __init__(self, width: int, inner: int, *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(9, width)
            self.below = nn.Linear(width, inner)
            self.conv = Conv1D(width, inner)
            self.again = nn.Linear(width, width, bias=False)
            self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
            self.two.weight = self.one.weight
            self.head = nn.Linear(width, 5)
            nn.init.normal_(self.conv.weight, std=0.5)
        self.checkpointing: Checkpointing = "off"
        self.double().requires_grad_(False)

    def block(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.conv(torch.tanh(self.below(x))) * mask
        x = x + torch.tanh(x.cumsum(1))  # a token sees those before it
        x = self.two(torch.tanh(self.again(self.again(self.one(x)))))
        return x * mask

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x, mask = self.embedding(ids), mask.unsqueeze(-1)
        if self.checkpointing == "off":
            x = self.block(x, mask)
        else:
            if self.checkpointing == "reentrant":
                x = x.requires_grad_()
            reentrant = self.checkpointing == "reentrant"
            x = checkpoint(self.block, x, mask, use_reentrant=reentrant)
        return self.head(x).log_softmax(-1)  # type: ignore[no-any-return]


def losses(net: Net, ids: Tensor, mask: Tensor) -> Tensor:
    """Mean over a row's real tokens of the loss of a made-up target; (B,)."""
    scores = net(ids, mask.to(net.head.weight.dtype))
    picked = scores.gather(-1, (ids % 5).unsqueeze(-1)).squeeze(-1)
    return -(picked * mask).sum(-1) / mask.sum(-1)


def slow(net: Net, rows: list[Tensor]) -> dict[str, Tensor]:
    """Sums over rows of squared gradients: one row at a time, not padded, by autograd."""
    weights = {name: net.get_parameter(name).requires_grad_() for name in NAMES}
    sums = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for row in rows:
        loss = losses(net, row[None], torch.ones(1, len(row), dtype=torch.float64))
        gradients = torch.autograd.grad(loss.sum(), list(weights.values()))
        for name, gradient in zip(weights, gradients, strict=True):
            sums[name] += gradient**2
    net.requires_grad_(False)
    return sums


def padded(rows: list[Tensor], side: str) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids, mask = torch.full((len(rows), longest), 8), torch.zeros(len(rows), longest)
    for b, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(longest - len(row), None)
        ids[b, place], mask[b, place] = row, 1.0
    return ids, mask


def batches(rows: list[Tensor], size: int) -> Iterator[list[Tensor]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def fast(net: Net, rows: list[Tensor], *, size: int, side: str = "right") -> dict[str, Tensor]:
    with squared_gradients(net, NAMES) as squares:
        for part in batches(rows, size):
            squares.add(losses(net, *padded(part, side)))
        return squares.totals


def drawn(lengths: list[int], seed: int) -> list[Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return [torch.randint(8, (length,), generator=chance) for length in lengths]


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    widths=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    size=st.integers(1, 5),
    side=st.sampled_from(["left", "right"]),
    checkpointing=st.sampled_from(["off", "reentrant", "plain"]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_any_batch_gives_what_batches_of_one_give(
    seed: int,
    widths: tuple[int, int],
    lengths: list[int],
    size: int,
    side: str,
    checkpointing: Checkpointing,
    dtype: torch.dtype,
) -> None:
    rows = drawn(lengths, seed)
    expected = slow(Net(*widths, seed=seed), rows)
    net = Net(*widths, seed=seed).to(dtype)
    net.checkpointing = checkpointing
    for name, total in fast(net, rows, size=size, side=side).items():
        assert total.dtype == torch.float32
        largest = float(expected[name].max())
        torch.testing.assert_close(
            total.double(), expected[name], rtol=2e-4, atol=1e-5 * largest + 1e-12
        )


@pytest.mark.parametrize("checkpointing", ["off", "reentrant", "plain"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_bfloat16_stays_within_its_own_rounding(size: int, checkpointing: Checkpointing) -> None:
    rows = drawn([5, 2, 6, 3], 3)
    net = Net(5, 6, seed=2).bfloat16()
    rounded = Net(5, 6, seed=2).bfloat16().double()
    net.checkpointing = checkpointing
    for name, total in fast(net, rows, size=size).items():
        expected = slow(rounded, rows)[name]
        error = (total.double() - expected).norm() / expected.norm()
        assert error < 2**-5


def test_the_result_is_the_same_bits_each_time() -> None:
    rows = drawn([5, 2, 6, 3], 3)
    one, other = (fast(Net(5, 6, seed=2), rows, size=3) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in NAMES)


def test_the_backward_ends_at_the_lowest_of_the_weights() -> None:
    net = Net(4, 4, seed=0)
    seen: dict[str, list[bool]] = {"embedding": [], "below": [], "conv": [], "again": []}
    returned: list[str] = []

    def watch(name: str) -> None:
        def after(_module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
            seen[name].append(output.requires_grad)
            if output.requires_grad:
                output.register_hook(lambda _gradient: returned.append(name))

        net.get_submodule(name).register_forward_hook(after)

    for name in seen:
        watch(name)
    with squared_gradients(net, ["again.weight"]) as squares:
        squares.add(losses(net, *padded(drawn([3, 5], 0), "right")))
    assert seen == {
        "embedding": [False],
        "below": [False],
        "conv": [False],
        "again": [True, True],
    }
    assert returned == ["again", "again"]
    assert bool(squares.totals["again.weight"].count_nonzero())


class Largest(TorchDispatchMode):
    """Remembers how many elements the largest tensor had that any operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.elements = max(self.elements, result.numel())
        return result


def test_beside_its_accumulator_nothing_of_a_weight_s_size_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(squared_products, "_BLOCK", {"cpu": 128})
    line, x = nn.Linear(64, 50), torch.randn(2, 3, 64)
    loss = line(x).square().sum((1, 2))
    with Largest() as plain:
        loss.sum().backward()
    assert plain.elements == 50 * 64
    with squared_gradients(line, ["weight"]) as squares:
        losses = line(x).square().sum((1, 2))
        with Largest() as ours:
            squares.add(losses)
    assert ours.elements <= max(128, x.numel())


def test_flags_gradients_and_forwards_are_as_before() -> None:
    net = Net(3, 3, seed=0)
    net.head.weight.requires_grad_()
    net.head.weight.grad = torch.ones_like(net.head.weight)
    with squared_gradients(net, NAMES) as squares:
        squares.add(losses(net, *padded(drawn([3, 5], 0), "right")))
        assert all(parameter.grad is None for parameter in net.parameters())
    assert [n for n, p in net.named_parameters() if p.requires_grad] == ["head.weight"]
    assert [n for n, p in net.named_parameters() if p.grad is not None] == ["head.weight"]
    assert not any("forward" in vars(module) for module in net.modules())


def test_a_use_that_nothing_depends_on_adds_nothing() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(2, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            self.line(2 * x)
            return self.line(x).sum((1, 2))  # type: ignore[no-any-return]

    x = torch.tensor([[[1.0, 2.0]], [[3.0, 0.0]]])
    with squared_gradients(model := Idle(), ["line.weight"]) as squares:
        squares.add(model(x))
    assert squares.totals["line.weight"].tolist() == [[10.0, 4.0]]


def test_inputs_that_do_not_tell_sequences_apart_are_refused_but_for_batches_of_one() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(2, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.line(x.flatten(0, 1)).view(len(x), -1).sum(1)  # type: ignore[no-any-return]

    model, x = Flat(), torch.tensor([[[1.0, 2.0]], [[3.0, 0.0]]])
    with squared_gradients(model, ["line.weight"]) as squares:
        with pytest.raises(
            InputError, match=r"line\.weight works on \(2, 1\) for 2.*batch_size to 1"
        ):
            squares.add(model(x))
        for row in x:
            squares.add(model(row[None]))
        assert squares.totals["line.weight"].tolist() == [[10.0, 4.0]]


def test_reentrant_checkpointing_without_a_gradient_at_its_inputs_is_refused() -> None:
    net = Net(3, 3, seed=0)
    ids, mask = padded(drawn([3, 5], 0), "right")

    def blind() -> Tensor:
        x = net.embedding(ids)
        with pytest.warns(UserWarning, match="None of the inputs have requires_grad"):
            x = checkpoint(net.block, x, mask.double()[..., None], use_reentrant=True)
        return net.head(x).sum((1, 2))  # type: ignore[no-any-return]

    names = ["below.weight", "head.weight"]
    with (
        squared_gradients(net, names) as squares,
        pytest.raises(RunError, match=r"no gradient came back to below\.weight.*reentrant"),
    ):
        squares.add(blind())


def test_a_weight_used_outside_its_module_is_refused() -> None:
    class Aside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(2, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return (self.line(x) @ self.line.weight).sum((1, 2))

    with (
        squared_gradients(model := Aside(), ["line.weight"]) as squares,
        pytest.raises(RunError, match=r"line\.weight is also used outside"),
    ):
        squares.add(model(torch.ones(2, 1, 2)))


def test_weights_it_cannot_follow_are_named() -> None:
    class Own(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    tied = nn.ModuleDict({"inside": nn.Embedding(3, 2), "out": nn.Linear(2, 3)})
    tied["out"].weight = tied["inside"].weight
    cases = [
        (tied, ["out.weight"], r"out\.weight is held by 'inside', a Embedding"),
        (nn.ModuleDict({"own": Own(2, 2)}), ["own.weight"], "'own', a Own"),
        (Net(2, 2, seed=0), ["one.bias"], "one.bias is held by 'one'"),
        (Net(2, 2, seed=0), ["one.weigt"], "no weight 'one.weigt'; did you mean 'one.weight'"),
        (Net(2, 2, seed=0), ["one.weight", "two.weight"], "are one weight"),
    ]
    for model, names, says in cases:
        with pytest.raises(InputError, match=says), squared_gradients(model, names):
            pass
        assert not any("forward" in vars(module) for module in model.modules())

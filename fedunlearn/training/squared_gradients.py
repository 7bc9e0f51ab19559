"""Per-sequence squared gradients of linear layers' weights, from one backward pass a batch.

For ``y = x W^T`` the gradient of sequence b's loss with respect to W is ``G_b^T X_b``, with X the
layer's inputs and G the gradients at its outputs (Goodfellow, 2015, arXiv 1510.01799). The sum of
the sequences' losses is backpropagated once; since no sequence looks at another, G_b belongs to
sequence b alone. The product is squared and added up where the backward pass meets the layer, so
that no gradient of the weight's shape outlives its block.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers.pytorch_utils import Conv1D

from fedunlearn.errors import InputError, RunError
from fedunlearn.registry import nearest
from fedunlearn.tensors.squared_products import add_squared_products


class SquaredGradients:
    """Sums of squared per-sequence gradients of some weights; grows batch by batch.

    Attributes:
        totals: parameter name to its sum, float32, of the weight's shape, on its device.
    """

    def __init__(self, weights: Sequence["_Weight"]) -> None:
        self._weights = weights
        self.totals = {weight.name: weight.total for weight in weights}

    def add(self, losses: Tensor) -> None:
        """Add the squared gradient of each of the losses, which a forward pass has just made.

        Args:
            losses: (B,), one a sequence of the batch, in its order; sequence b's loss must
                depend on sequence b alone.

        Raises:
            InputError: B > 1, and a layer's input does not begin with the batch dimension.
            RunError: a layer was used, but no gradient came back to it; or its weight is also
                used outside the layer, where its gradient cannot be told by sequence.
        """
        for weight in self._weights:
            weight.expect(losses.shape[0])
        try:
            losses.sum().backward()  # type: ignore[no-untyped-call]
            for weight in self._weights:
                weight.finish()
        finally:
            for weight in self._weights:
                weight.forget()


@contextmanager
def squared_gradients(model: torch.nn.Module, names: Sequence[str]) -> Iterator[SquaredGradients]:
    """Collect squared gradients of the named weights for the length of the block.

    Only these weights require a gradient inside, and their modules compute through an
    autograd function of ours; afterwards both are as before. No weight's ``.grad`` is set.
    The backward pass ends at the lowest of the modules. Gradient checkpointing, reentrant or
    not, changes nothing: a recomputed forward pass is not counted again.

    Args:
        model: without adapters.
        names: parameters of ``nn.Linear`` or transformers' ``Conv1D`` modules. Modules that
            share one of them are all counted.

    Raises:
        InputError: a name that is no such weight or two that are one, or a weight that another
            kind of module shares.
    """
    weights = [_Weight(name, parameter) for name, parameter in _parameters(model, names)]
    before = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    patched: list[torch.nn.Module] = []
    try:
        for parameter, _, _ in before:
            parameter.requires_grad_(False).grad = None
        for weight in weights:
            weight.parameter.requires_grad_(True)
            for module in _modules(model, weight):
                module.forward = partial(_forward, module, weight)
                patched.append(module)
        yield SquaredGradients(weights)
    finally:
        for module in patched:
            del module.forward
        for parameter, flag, gradient in before:
            parameter.requires_grad_(flag).grad = gradient


class _Weight:
    """One weight, its sum, and the uses of the pass at hand that wait to be squared together."""

    def __init__(self, name: str, parameter: torch.nn.Parameter) -> None:
        self.name = name
        self.parameter = parameter
        self.total = torch.zeros_like(
            parameter, dtype=torch.float32, memory_format=torch.contiguous_format
        )
        self._sequences: int | None = None
        self._used = self._met = 0
        self._waiting: list[tuple[Tensor, Tensor]] = []

    def use(self) -> None:
        """Count a use; those of recomputed forward passes, during the backward, do not count."""
        if self._sequences is None:
            self._used += 1

    def expect(self, sequences: int) -> None:
        """The backward pass begins, of a batch of so many sequences."""
        self._sequences = sequences

    def meet(self, left: Tensor, right: Tensor) -> None:
        """Take the operands of one use; with the last one, square and add."""
        self._met += 1
        self._waiting.append((self._by_sequence(left), self._by_sequence(right)))
        if self._met == self._used:
            self._square()

    def finish(self) -> None:
        """Square what waits for a use that nothing depended on.

        Raises:
            RunError: see :meth:`SquaredGradients.add`.
        """
        if self._used and not self._met:
            raise RunError(
                f"no gradient came back to {self.name}; with reentrant gradient checkpointing, "
                "the model's inputs must require one"
            )
        if self.parameter.grad is not None:
            raise RunError(
                f"{self.name} is also used outside its module; its Fisher would miss that use"
            )
        self._square()

    def forget(self) -> None:
        """Be ready for the next forward pass."""
        self._waiting.clear()
        self._sequences, self._used, self._met = None, 0, 0
        self.parameter.grad = None

    def _square(self) -> None:
        if self._waiting:
            add_squared_products(self.total, self._waiting)
            self._waiting.clear()

    def _by_sequence(self, operand: Tensor) -> Tensor:
        """(B, T, d), whatever dimensions lie between batch and features."""
        sequences, features = self._sequences, operand.shape[-1]
        if sequences == 1:
            return operand.reshape(1, -1, features)
        if sequences is None or operand.ndim < 3 or operand.shape[0] != sequences:
            raise InputError(
                f"the layer of {self.name} works on {tuple(operand.shape)} for {sequences} "
                "sequences, which does not tell them apart; set fisher.batch_size to 1"
            )
        return operand.reshape(sequences, -1, features)


def _parameters(
    model: torch.nn.Module, names: Sequence[str]
) -> Iterator[tuple[str, torch.nn.Parameter]]:
    known = dict(model.named_parameters(remove_duplicate=False))
    seen: dict[int, str] = {}
    for name in dict.fromkeys(names):
        if name not in known:
            raise InputError(f"the model has no weight {name!r}{nearest(name, list(known))}")
        if (first := seen.setdefault(id(known[name]), name)) != name:
            raise InputError(f"{first!r} and {name!r} are one weight; name it once")
        yield name, known[name]


def _modules(model: torch.nn.Module, weight: _Weight) -> Iterator[torch.nn.Module]:
    """All modules that hold the weight."""
    for path, module in model.named_modules():
        held = module._parameters.items()
        if not any(parameter is weight.parameter for _, parameter in held):
            continue
        if _kind(module) is None or module._parameters["weight"] is not weight.parameter:
            raise InputError(
                f"{weight.name} is held by {path!r}, a {type(module).__name__}; the Fisher pass "
                "knows weights of nn.Linear and Conv1D modules only"
            )
        yield module


def _kind(module: torch.nn.Module) -> type[torch.nn.Module] | None:
    """The layer a module computes; none if a subclass computes something else."""
    forward: Callable[..., Tensor] = type(module).forward
    return next((kind for kind in (torch.nn.Linear, Conv1D) if forward is kind.forward), None)


def _forward(module: torch.nn.Module, weight: _Weight, x: Tensor) -> Tensor:
    weight.use()
    transposed = _kind(module) is Conv1D
    output: Tensor = _Layer.apply(x, module.weight, module.bias, weight, transposed)  # type: ignore[no-untyped-call]
    return output


class _Layer(torch.autograd.Function):
    """A linear layer that hands its operands on where autograd would make a weight gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, stored: Tensor, bias: Tensor | None, weight: _Weight, transposed: bool
    ) -> Tensor:
        ctx.save_for_backward(x, stored)
        ctx.weight, ctx.transposed = weight, transposed
        return torch.nn.functional.linear(x, stored.T if transposed else stored, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        x, stored = ctx.saved_tensors
        pair = (x, gradient) if ctx.transposed else (gradient, x)
        ctx.weight.meet(*pair)
        below = None
        if ctx.needs_input_grad[0]:
            below = gradient @ (stored.T if ctx.transposed else stored)
        return below, None, None, None, None

"""The harmonic average of displacements (MPU, eq. 10), accumulated as they come (eq. 14-15)."""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedunlearn.copies.factory import (
    Factors,
    Tensors,
    adapted_parameter,
    check_shape,
    pairs,
)
from fedunlearn.copies.plan import CopyPlan
from fedunlearn.errors import InputError, RunError
from fedunlearn.registry import nearest
from fedunlearn.tensors.low_rank import LowRank
from fedunlearn.tensors.sums import blocks
from fedunlearn.tensors.threads import in_threads

ALONE: Mapping[str, float] = {"client": 1.0}
"""One client does every copy."""


Shares = Mapping[tuple[int, str], float]
"""Weight of a client's displacement from a copy, for all that are due; they sum to 1."""


def harmonic_shares(alphas: Sequence[float], clients: Mapping[str, float] = ALONE) -> Shares:
    """Weights of the harmonic average (eq. 10), shared out between clients.

    Args:
        alphas: of all copies, at least two.
        clients: name to weight, positive; only their ratios matter.

    Raises:
        InputError: fewer than two copies, or a weight that is not positive.
    """
    if len(alphas) < 2:
        raise InputError(f"{len(alphas)} copy cannot cancel its noise; m must be at least 2")
    if not all(alpha > 0 and math.isfinite(alpha) for alpha in alphas):
        raise InputError(f"alphas must be positive numbers, got {list(alphas)}")
    inverse = [1 / alpha for alpha in alphas]
    return {
        (copy, client): part / sum(inverse) * share
        for copy, part in enumerate(inverse, 1)
        for (_, client), share in client_shares(clients).items()
    }


def client_shares(clients: Mapping[str, float]) -> Shares:
    """Weights of the clients' mean displacement from a single copy.

    Raises:
        InputError: no client, or a weight that is not positive.
    """
    if not clients or not all(weight > 0 for weight in clients.values()):
        raise InputError(f"clients need positive weights, got {dict(clients)}")
    total = sum(clients.values())
    return {(1, client): weight / total for client, weight in clients.items()}


class _Expected:
    """Which displacements are due, what each weighs, and which are in."""

    def __init__(self, shares: Shares) -> None:
        self._weights = dict(shares)
        self._in: set[tuple[int, str]] = set()
        self._broken: tuple[int, str] | None = None

    def skip(self, copies: int) -> None:
        """Count the displacements of the first copies as being in."""
        self._in = {key for key in self._weights if key[0] <= copies}

    def begin(self, copy: int, client: str) -> float:
        """Weight of a displacement that is about to be added; nothing counts until :meth:`end`."""
        if (copy, client) not in self._weights:
            raise InputError(f"no displacement of copy {copy} is due from client {client!r}")
        if (copy, client) in self._in:
            raise RunError(f"copy {copy} of client {client!r} is in already; it counts once")
        self._refuse_broken()
        self._broken = copy, client
        return self._weights[copy, client]

    def end(self) -> None:
        """What was begun is in, whole."""
        assert self._broken is not None
        self._in.add(self._broken)
        self._broken = None

    def check_complete(self) -> None:
        """Raise RunError while something is due."""
        self._refuse_broken()
        if due := sorted(self._weights.keys() - self._in):
            text = ", ".join(f"copy {copy} of client {client!r}" for copy, client in due)
            raise RunError(f"the average lacks {text}; without all copies the noise stays in")

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            copy, client = self._broken
            raise RunError(
                f"copy {copy} of client {client!r} broke off half way; the average is spoilt, "
                "begin the round again"
            )


class DisplacementSum:
    """One float32 accumulator over all parameters, of displacements times their shares.

    In exact arithmetic the order of additions does not matter; in float32 it may in the last bit.
    """

    def __init__(self, shares: Shares, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Start at zero.

        Args:
            shares: of every displacement that is due.
            shapes: what every displacement must consist of, e.g. ``plan.shapes``.
        """
        self._expected = _Expected(shares)
        self._sums = {name: torch.zeros(shape) for name, shape in shapes.items()}

    def tensors(self) -> Mapping[str, Tensor]:
        """The sum so far, to be stored; the accumulator itself."""
        return self._sums

    def restore(self, tensors: Mapping[str, Tensor], *, copies: int) -> None:
        """Go on from what :meth:`tensors` gave when the first ``copies`` were in."""
        self._expected.skip(copies)
        for name, tensor in tensors.items():
            self._sums[name].copy_(tensor)

    def moves(self) -> Iterator[tuple[str, Tensor]]:
        """Names and averages, one after another; see :meth:`result`."""
        yield from self.result().items()

    def add(self, copy: int, displacement: Tensors, *, client: str = "client") -> None:
        """Add one displacement, in the server's coordinates (:meth:`CopyFactory.undo`).

        Raises:
            RunError: this client's displacement from this copy is in already, or an earlier one
                broke off.
            InputError: it is not due; or tensors are missing, unknown, twice there, of another
                shape or not finite. The average is spoilt then: begin the round again.
        """
        weight = self._expected.begin(copy, client)
        seen: set[str] = set()
        for name, tensor in pairs(displacement):
            where = f"copy {copy} of client {client!r}"
            if name not in self._sums or name in seen:
                hint = "; it is there twice" if name in seen else nearest(name, list(self._sums))
                raise InputError(f"{where} has an unexpected tensor {name!r}{hint}")
            check_shape(f"{where}: {name}", tensor, tuple(self._sums[name].shape))
            if not _add_finite(self._sums[name], tensor, weight):
                raise InputError(f"{where}: {name!r} has entries that are not finite numbers")
            seen.add(name)
        if missing := sorted(self._sums.keys() - seen):
            text = f"lacks {len(missing)} tensors, e.g. {missing[0]!r}"
            raise InputError(f"copy {copy} of client {client!r} {text}")
        self._expected.end()

    def result(self) -> dict[str, Tensor]:
        """The average, float32; the accumulator itself, not a copy.

        Raises:
            RunError: displacements are missing; the text names copies and clients.
        """
        self._expected.check_complete()
        return self._sums


def _add_finite(sums: Tensor, tensor: Tensor, weight: float) -> bool:
    """Add ``weight * tensor`` in place; whether all its entries are finite."""
    flat, added = sums.view(-1), tensor.detach().cpu().reshape(-1)

    def add(part: slice) -> bool:
        here = added[part].to(torch.float32)
        flat[part].add_(here, alpha=weight)
        # the sum of finite numbers may overflow, but that of others is never finite: quick first
        return bool(here.sum().isfinite()) or bool(here.isfinite().all())

    return all(list(in_threads(add, list(blocks(added.numel(), 1 << 16)))))


class HarmonicMean(DisplacementSum):
    """The harmonic average, complete once every copy of every client is in.

    ``result = sum_k (1/alpha_k) mean_k / sum_k (1/alpha_k)``, where ``mean_k`` is the clients'
    mean displacement from copy k, weighted by ``clients``.
    """

    def __init__(
        self,
        alphas: Sequence[float],
        shapes: Mapping[str, tuple[int, ...]],
        *,
        clients: Mapping[str, float] = ALONE,
    ) -> None:
        """Start at zero; arguments as for :func:`harmonic_shares` and :class:`DisplacementSum`."""
        super().__init__(harmonic_shares(alphas, clients), shapes)


class FactorSum:
    """The same for LoRA: a product per module, of all ranks side by side, nothing dense."""

    def __init__(self, shares: Shares, plan: CopyPlan) -> None:
        """Start empty."""
        self._expected, self._plan = _Expected(shares), plan
        self._parts: dict[str, list[LowRank]] = {}
        self._modules: frozenset[str] | None = None

    def tensors(self) -> Mapping[str, Tensor]:
        """The sum so far, to be stored: both factors of every module."""
        found: dict[str, Tensor] = {}
        for module, parts in self._parts.items():
            whole = LowRank.total(parts)
            found |= {f"{module}.left": whole.left, f"{module}.right": whole.right}
        return found

    def restore(self, tensors: Mapping[str, Tensor], *, copies: int) -> None:
        """Go on from what :meth:`tensors` gave when the first ``copies`` were in."""
        self._expected.skip(copies)
        modules = {name.rpartition(".")[0] for name in tensors}
        self._modules = frozenset(modules)
        for module in sorted(modules):
            left, right = (tensors[f"{module}.{side}"] for side in ("left", "right"))
            self._parts[module] = [LowRank(left.clone(), right.clone())]

    def moves(self) -> Iterator[tuple[str, Tensor]]:
        """Names and averages, multiplied out one after another; see :meth:`result`."""
        for name, product in self.result().items():
            yield name, product.dense()

    def add(
        self,
        copy: int,
        factors: Factors,
        *,
        scaling: float | Mapping[str, float],
        client: str = "client",
    ) -> None:
        """Add one adapter in the server's coordinates (:meth:`CopyFactory.undo_lora`).

        Args:
            copy: that it was trained on.
            factors: module to A and B.
            scaling: s of ``s * B @ A``, for all modules or by module.
            client: who trained it.

        Raises:
            RunError: it is in already.
            InputError: it is not due, has other modules than the first one, or factors that do
                not fit or are not finite.
        """
        weight = self._expected.begin(copy, client)
        where, modules = f"copy {copy} of client {client!r}", frozenset(factors)
        if modules != (self._modules or modules):
            odd = sorted(modules ^ (self._modules or modules))
            raise InputError(f"{where} does not adapt the modules of the others, e.g. {odd[0]!r}")
        self._modules = modules
        for module, (A, B) in factors.items():
            if not bool(A.isfinite().all() and B.isfinite().all()):
                raise InputError(f"{where}: {module!r} has entries that are not finite numbers")
            s = scaling if isinstance(scaling, int | float) else scaling[module]
            self._parts.setdefault(module, []).append(self._product(module, A, B, s * weight))
        self._expected.end()

    def _product(self, module: str, A: Tensor, B: Tensor, factor: float) -> LowRank:
        parameter = adapted_parameter(self._plan, module, A, B)
        A, B = A.detach().to("cpu", torch.float32), B.detach().to("cpu", torch.float32) * factor
        return LowRank(A.T, B.T) if parameter.transposed else LowRank(B, A)

    def result(self) -> dict[str, LowRank]:
        """Weight's name to the average, in the weight's own orientation (Conv1D: d_in, d_out).

        Raises:
            RunError: displacements are missing; the text names copies and clients.
        """
        self._expected.check_complete()
        return {f"{module}.weight": LowRank.total(parts) for module, parts in self._parts.items()}


class HarmonicFactors(FactorSum):
    """The harmonic average of adapters."""

    def __init__(
        self, alphas: Sequence[float], plan: CopyPlan, *, clients: Mapping[str, float] = ALONE
    ) -> None:
        """Start empty; arguments as for :class:`HarmonicMean`."""
        super().__init__(harmonic_shares(alphas, clients), plan)

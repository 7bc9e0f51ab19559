"""Makes the published copies of a round and takes what clients did to them back."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from fedunlearn.copies.levels import NoiseFacts, block_sigmas, noise_facts, noised_names
from fedunlearn.copies.plan import CopyPlan, Parameter
from fedunlearn.copies.secret import RoundSecret
from fedunlearn.copies.settings import CopySettings
from fedunlearn.copies.symmetry import PARTS, Symmetries
from fedunlearn.errors import InputError
from fedunlearn.tensors.noise import Noise, independent_noise, zero_sum_noise
from fedunlearn.tensors.symmetry import assemble
from fedunlearn.tensors.symmetry.assembling import Mapped

Tensors = Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]
"""Names and tensors, all at once or one after another."""
Factors = Mapping[str, tuple[Tensor, Tensor]]
"""Module to LoRA's A, shape (r, d_in), and B, shape (d_out, r)."""


class CopyFactory:
    """The copies of one round. Copies are numbered from 1 to m, as in the paper.

    Limitations: works on the CPU; weights elsewhere are brought there tensor by tensor.
    """

    def __init__(
        self,
        plan: CopyPlan,
        settings: CopySettings,
        weights: Mapping[str, Tensor],
        reference: Mapping[str, Tensor] | None,
        secret: RoundSecret,
        *,
        server_round: int,
    ) -> None:
        """Measure the blocks; nothing is published yet.

        Args:
            plan: of this model.
            settings: of the copies.
            weights: the server's, any floating dtype; read, never changed. They must stay as
                they are until the last copy is published.
            reference: weights of the public model (eq. 3), read one tensor at a time; ``None``
                where no noise is calibrated by them.
            secret: of the run or of the round.
            server_round: counts from 1; rounds have independent noise and symmetries.

        Raises:
            InputError: weights or reference that do not fit the plan, or a share of unchanged
                entries above ``settings.max_unchanged``.
        """
        check_weights(plan, weights)
        self.plan, self.settings, self.weights = plan, settings, weights
        self._secret, self._round = secret, server_round
        self._noised = noised_names(plan, settings)
        self._sigmas = block_sigmas(plan, settings, weights, reference)
        self._facts = [
            noise_facts(plan, settings, weights, self._sigmas, copy)
            for copy in range(1, settings.m + 1)
        ]
        self._check_noise_survives()
        parts = PARTS[settings.symmetry]
        self._symmetries = Symmetries(plan, parts, secret, server_round)

    def facts(self, copy: int) -> NoiseFacts:
        """What the noise of a copy amounts to, for the report."""
        self._check_copy(copy)
        return self._facts[copy - 1]

    def publish(self, copy: int) -> Iterator[tuple[str, Tensor]]:
        """Make ``T(theta + eps)`` one tensor at a time (eq. 1), in the publishing dtype.

        Tied parameters come once. The same call gives the same bits again.

        Returns:
            Names and contiguous tensors on the CPU, in the plan's order, the caller's to keep.
        """
        self._check_copy(copy)
        for name, parameter in self.plan.parameters.items():
            mapped = self._symmetries.on(copy, parameter)
            noise = self._noise(copy, name, parameter)
            yield name, _made(self.weights[name], parameter, mapped, noise, self.settings.dtype)

    def noised(self, copy: int, name: str) -> Tensor:
        """Return ``theta + eps`` of one parameter, before T; float32, a new tensor."""
        self._check_copy(copy)
        parameter = self.plan.parameter(name)
        return _made(self.weights[name], parameter, [], self._noise(copy, name, parameter))

    def _noise(self, copy: int, name: str, parameter: Parameter) -> Noise | None:
        sigma = self._sigmas[parameter.block] * self.settings.scales[copy - 1]
        if name not in self._noised or not sigma:
            return None
        key = self._secret.derive("noise", self._round, name)
        return zero_sum_noise(key, copy, self.settings.m, sigma)

    def undo(self, copy: int, displacement: Tensors) -> Iterator[tuple[str, Tensor]]:
        """Map a client's displacement back into the server's coordinates (eq. 9), float32.

        Args:
            copy: that the client worked on.
            displacement: name to what was added to the copy; not changed. Names may be lacking
                and come in any order, fastest layer by layer.

        Raises:
            InputError: a name or shape that the plan does not have.
        """
        self._check_copy(copy)
        for name, tensor in pairs(displacement):
            parameter = self.plan.parameter(name)
            check_shape(name, tensor, parameter.shape)
            if mapped := self._symmetries.on(copy, parameter):
                yield name, _made(tensor, parameter, mapped, undo=True)
            else:
                yield name, tensor.detach().to("cpu", torch.float32)

    def undo_lora(self, copy: int, factors: Factors) -> dict[str, tuple[Tensor, Tensor]]:
        """Map an adapter back: T^-1 acts on the factors, nothing dense is made.

        The displacement of a weight is ``s * B @ A``, transposed where weights are stored as
        (d_in, d_out). Its rows are those of B, its columns those of A, whichever is mapped.

        Returns:
            Module to A and B, float32, in the server's coordinates; the scaling is unchanged.

        Raises:
            InputError: a module that is not of the plan, or factors that do not fit its weight.
        """
        self._check_copy(copy)
        return {
            module: self._undo_factors(copy, module, A, B) for module, (A, B) in factors.items()
        }

    def _undo_factors(self, copy: int, module: str, A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
        parameter = adapted_parameter(self.plan, module, A, B)
        A, B = (one.detach().to("cpu", torch.float32) for one in (A, B))
        if not parameter.actions:
            return A, B
        symmetry = self._symmetries.of(copy, parameter)
        if (parameter.axis == 0) != parameter.transposed:
            return A, symmetry.undo_factor(parameter, B, 0)
        return symmetry.undo_factor(parameter, A, 1), B

    def _check_copy(self, copy: int) -> None:
        if not 1 <= copy <= self.settings.m:
            raise InputError(f"there is no copy {copy}; copies are 1 to {self.settings.m}")

    def _check_noise_survives(self) -> None:
        worst = max(self._facts, key=lambda facts: facts.unchanged)
        if any(self._sigmas.values()) and worst.unchanged > self.settings.max_unchanged:
            raise InputError(
                f"rounding to {self.settings.publish_dtype} leaves {worst.unchanged:.0%} of the "
                f"noised entries of copy {worst.copy} as if there were no noise, more than "
                f"max_unchanged={self.settings.max_unchanged:g}; publish float32, or raise kappa "
                "or the limit"
            )


def without_noise(
    plan: CopyPlan,
    parts: frozenset[str],
    weights: Mapping[str, Tensor],
    secret: RoundSecret,
) -> Iterator[tuple[str, Tensor]]:
    """Make ``T(theta)``, float32, with a T that no published copy has (round 0).

    Args:
        plan: of the model.
        parts: which transforms, of those in :data:`~fedunlearn.copies.symmetry.PARTS`.
        weights: the server's.
        secret: that T is drawn from.
    """
    check_weights(plan, weights)
    symmetries = Symmetries(plan, parts, secret, server_round=0)
    for name, parameter in plan.parameters.items():
        yield name, _made(weights[name], parameter, symmetries.on(0, parameter))


def noised_baseline(
    plan: CopyPlan,
    settings: CopySettings,
    weights: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    secret: RoundSecret,
    *,
    server_round: int,
) -> Iterator[tuple[str, Tensor]]:
    """Make the single copy of the paper's *noised* baseline: independent noise, no symmetry.

    Its standard deviation is ``mean(alpha) * sigma`` a block. Nothing cancels it: the client works
    on ``theta + eps``, and ``theta + eps + displacement`` is the baseline's result.

    Returns:
        Names and float32 tensors, in the plan's order.
    """
    check_weights(plan, weights)
    noised = noised_names(plan, settings)
    sigmas = block_sigmas(plan, settings, weights, reference)
    scale = sum(settings.scales) / settings.m
    for name, parameter in plan.parameters.items():
        key = secret.derive("baseline", server_round, name)
        sigma = scale * sigmas[parameter.block] if name in noised else 0.0
        yield name, _made(weights[name], parameter, [], independent_noise(key, sigma))


def _made(
    tensor: Tensor,
    parameter: Parameter,
    mapped: Mapped,
    noise: Noise | None = None,
    dtype: torch.dtype = torch.float32,
    *,
    undo: bool = False,
) -> Tensor:
    """Add noise and map, in one pass; a new tensor of the same shape on the CPU."""
    matrix = tensor.detach().cpu().contiguous().view(tensor.shape[0], -1)
    columns = matrix.shape[1]

    def read(rows: slice) -> Tensor:
        block = matrix[rows].to(torch.float32, copy=True)
        return block if noise is None else noise.add_(block, rows.start * columns)

    shape = len(matrix), columns
    made = assemble(shape, read, parameter.axis, mapped, undo=undo, dtype=dtype)
    return made.view(tensor.shape)


def pairs(tensors: Tensors) -> Iterable[tuple[str, Tensor]]:
    """Names and tensors, one after another."""
    return tensors.items() if isinstance(tensors, Mapping) else tensors


def check_weights(plan: CopyPlan, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of the plan.

    Raises:
        InputError: a parameter that is missing, unknown, of another shape or not floating point;
            or tied ones that differ.
    """
    if missing := [name for name in plan.parameters if name not in weights]:
        raise InputError(f"the weights lack {len(missing)} parameters, e.g. {missing[0]!r}")
    for name in weights:
        if name not in plan.tied:
            plan.parameter(name)
    for name, shape in plan.shapes.items():
        check_shape(name, weights[name], shape)
        if not weights[name].is_floating_point():
            raise InputError(f"{name!r} is {weights[name].dtype}; copies need floating point")
    for name, first in plan.tied.items():
        if name in weights and not torch.equal(weights[name], weights[first]):
            raise InputError(
                f"the configuration ties {name!r} to {first!r}, but their values differ; "
                "a copy would be another model"
            )


def check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a tensor of another shape."""
    if tuple(tensor.shape) != shape:
        raise InputError(f"{name!r} has shape {tuple(tensor.shape)}, expected {shape}")


def adapted_parameter(plan: CopyPlan, module: str, A: Tensor, B: Tensor) -> Parameter:
    """Find the weight that an adapter changes.

    Raises:
        InputError: the plan has no such weight, or it is no matrix that A and B fit.
    """
    name = f"{module}.weight"
    if name in plan.tied:
        raise InputError(
            f"{module!r} is tied to {plan.tied[name]!r}; an adapter cannot change one alone"
        )
    parameter = plan.parameter(name)
    expected = parameter.shape[::-1] if parameter.transposed else parameter.shape
    fits = A.dim() == B.dim() == 2 and (B.shape[0], A.shape[1]) == expected
    if len(parameter.shape) != 2 or not fits or A.shape[0] != B.shape[1]:
        raise InputError(
            f"adapter of {module!r}: A {tuple(A.shape)} and B {tuple(B.shape)} do not fit its "
            f"weight of {expected} (outputs, inputs)"
        )
    return parameter


def digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order given."""
    found = hashlib.sha256()
    for name, tensor in tensors:
        found.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found.update(flat.numpy().data)
    return found.hexdigest()

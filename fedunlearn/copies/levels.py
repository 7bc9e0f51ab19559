"""How much noise each block gets, and what is left of it after rounding."""

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from fedunlearn.copies.plan import CopyPlan
from fedunlearn.copies.settings import CopySettings
from fedunlearn.errors import InputError
from fedunlearn.registry import nearest
from fedunlearn.tensors.noise import independent_noise, rounded_away
from fedunlearn.tensors.sums import sum_of, total, widened

logger = logging.getLogger(__name__)

SAMPLE = 1 << 14
"""Entries of a parameter that facts are estimated from; too few for PyTorch to use threads."""


@dataclass(frozen=True)
class NoiseFacts:
    """What the noise of one copy amounts to.

    Attributes:
        copy: its number, from 1.
        alpha: its noise scale.
        sigma: block to the standard deviation of its noise before ``alpha``.
        unchanged: share of the entries to be noised that rounding leaves as they would be
            without noise; estimated from at most 16,384 entries a parameter.
        effective_sigma: block to the root mean square of the difference that noise makes once
            the weights are rounded; estimated likewise.
        exact: parameters that are published without noise.
    """

    copy: int
    alpha: float
    sigma: Mapping[str, float]
    unchanged: float
    effective_sigma: Mapping[str, float]
    exact: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        return {
            "copy": self.copy,
            "alpha": self.alpha,
            "sigma": dict(self.sigma),
            "unchanged": self.unchanged,
            "effective_sigma": dict(self.effective_sigma),
            "exact": list(self.exact),
        }


def noised_names(plan: CopyPlan, settings: CopySettings) -> frozenset[str]:
    """Parameters that :attr:`CopySettings.perturb` names.

    Raises:
        InputError: a pattern matches no parameter.
    """
    for pattern in settings.perturb:
        if not any(fnmatchcase(name, pattern) for name in plan.parameters):
            hint = nearest(pattern, list(plan.parameters))
            raise InputError(f"perturb: {pattern!r} matches no parameter{hint}")
    return frozenset(
        name
        for name in plan.parameters
        if any(fnmatchcase(name, pattern) for pattern in settings.perturb)
    )


def block_sigmas(
    plan: CopyPlan,
    settings: CopySettings,
    weights: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
) -> dict[str, float]:
    """Standard deviation of each block's noise before alpha: ``kappa * RMS(v)`` (eq. 3).

    With ``privacy``, the one number of eq. 28 for all, over the smallest alpha: the least noised
    copy has it, the others more.

    Raises:
        InputError: a reference is needed and missing, or does not fit.
    """
    noised = noised_names(plan, settings)
    blocks = {block: [n for n in names if n in noised] for block, names in plan.blocks.items()}
    if settings.privacy is not None:
        return dict.fromkeys(blocks, settings.privacy.sigma / min(settings.scales))
    if settings.kappa == 0:
        logger.info("kappa is 0: copies get no noise, only the symmetry hides the weights")
        return dict.fromkeys(blocks, 0.0)
    if reference is None:
        raise InputError(
            "noise is measured by the difference from a public reference model (eq. 3), but "
            "there is none; name one, or set kappa=0"
        )
    sigmas = {
        block: settings.kappa * _rms(plan, names, weights, reference)
        for block, names in blocks.items()
    }
    zero = [block for block, names in blocks.items() if names and not sigmas[block]]
    if zero:
        logger.warning(
            "the weights equal the reference model's in %s: no noise there, they are published "
            "exactly up to the symmetry",
            "every block" if len(zero) == len(blocks) else ", ".join(zero),
        )
    return sigmas


def _rms(
    plan: CopyPlan,
    names: list[str],
    weights: Mapping[str, Tensor],
    reference: Mapping[str, Tensor],
) -> float:
    """Root mean square of the task vector over some parameters; 0 without any; float64."""
    squares, count = 0.0, 0
    for name in names:
        squares += _squared_distance(weights[name], _fitting(plan, name, reference))
        count += weights[name].numel()
    return math.sqrt(squares / count) if count else 0.0


def _squared_distance(one: Tensor, other: Tensor) -> float:
    """Sum of the squared differences of entries, in float64."""
    one, other = one.detach().cpu().reshape(-1), other.detach().cpu().reshape(-1)
    return sum_of(
        lambda part: total(widened(one[part]).sub_(other[part]).square_()), one.numel()
    ).item()


def _fitting(plan: CopyPlan, name: str, reference: Mapping[str, Tensor]) -> Tensor:
    if name not in reference:
        raise InputError(f"the reference model has no {name!r}; it must be of the same family")
    if (shape := tuple(reference[name].shape)) != plan.shapes[name]:
        raise InputError(
            f"the reference model's {name!r} has shape {shape}, the model's {plan.shapes[name]}; "
            "it must be the public version of this model"
        )
    return reference[name]


def noise_facts(
    plan: CopyPlan,
    settings: CopySettings,
    weights: Mapping[str, Tensor],
    sigmas: Mapping[str, float],
    copy: int,
) -> NoiseFacts:
    """Measure the noise of one copy on a sample of every parameter.

    The sample's noise is of the same distribution as the copy's, and drawn apart from it: facts
    go into reports, and must tell nothing of the secret.
    """
    alpha, noised = settings.scales[copy - 1], noised_names(plan, settings)
    drawn = [
        (name, parameter.block)
        for name, parameter in plan.parameters.items()
        if name in noised and sigmas[parameter.block]
    ]
    changed = entries = 0.0
    squares, counts = dict.fromkeys(plan.blocks, 0.0), dict.fromkeys(plan.blocks, 0)
    for name, block in drawn:
        same, square = _sampled(weights[name], alpha * sigmas[block], settings.dtype)
        size = weights[name].numel()
        changed, entries = changed + (1 - same) * size, entries + size
        squares[block], counts[block] = squares[block] + square * size, counts[block] + size
    effective = {block: math.sqrt(squares[block] / max(1, counts[block])) for block in squares}
    exact = tuple(_exact(plan, noised, sigmas))
    unchanged = 1 - changed / entries if entries else 1.0
    return NoiseFacts(copy, alpha, dict(sigmas), unchanged, effective, exact)


def _exact(plan: CopyPlan, noised: frozenset[str], sigmas: Mapping[str, float]) -> Iterator[str]:
    for name, parameter in plan.parameters.items():
        if name not in noised or not sigmas[parameter.block]:
            yield name


def _sampled(weight: Tensor, sigma: float, dtype: torch.dtype) -> tuple[float, float]:
    """Share of unchanged entries of a parameter, and mean squared change."""
    flat = weight.detach().reshape(-1)
    some = flat[:: max(1, flat.numel() // SAMPLE) | 1][:SAMPLE].cpu()
    same, squares = rounded_away(some, independent_noise(bytes(32), sigma), dtype)
    return same / some.numel(), squares / some.numel()

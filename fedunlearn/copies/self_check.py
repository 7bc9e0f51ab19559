"""Does a copy compute what the model computes? Asked of the real model before it is published."""

from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedunlearn.copies.factory import without_noise
from fedunlearn.copies.plan import CopyPlan
from fedunlearn.copies.secret import RoundSecret
from fedunlearn.copies.settings import CopySettings
from fedunlearn.copies.symmetry import PARTS
from fedunlearn.errors import RunError
from fedunlearn.seeding import generator

_LENGTH, _PADDED, _NEW = 24, 7, 4
"""Tokens of a probe, how many of them are padding, how many are read one by one from a cache."""
Weights = dict[str, Tensor]


def self_check(
    model: torch.nn.Module, plan: CopyPlan, settings: CopySettings, secret: RoundSecret
) -> float:
    """Compare logits of the model and of a copy without noise, both in float32.

    Random tokens, padded on the left and on the right, at positions up to the end of a short
    text, whole and token by token from a cache. The copy's symmetry is drawn for this check alone
    (round 0), so that it tells nothing of a published one.

    Args:
        model: a transformers causal language model in evaluation mode; not changed. Beside it,
            two float32 copies of its weights are in memory during the check.
        plan: of it.
        settings: of the copies.
        secret: of the copies.

    Returns:
        The largest absolute difference.

    Raises:
        RunError: it exceeds ``settings.self_check_bound``, or is not a number; nothing may be
            published.
    """
    parameters = {name: one.detach() for name, one in model.named_parameters()}
    copy = without_noise(plan, PARTS[settings.symmetry], parameters, secret)
    device = next(iter(parameters.values())).device
    plain = {name: one.float() for name, one in parameters.items()}
    copied = {name: one.to(device) for name, one in copy}
    return check_logits(model, plan, plain, copied, bound=settings.self_check_bound)


def check_logits(
    model: torch.nn.Module,
    plan: CopyPlan,
    plain: Weights,
    copied: Weights,
    *,
    bound: float,
) -> float:
    """Compare the logits that two sets of weights give; see :func:`self_check`."""
    worst = 0.0
    with torch.no_grad():
        both = zip(probe_logits(model, plain), probe_logits(model, copied), strict=True)
        for expected, got in both:
            difference = float((expected - got).abs().max())
            worst = difference if not difference <= worst else worst  # keeps a NaN
    if not worst <= bound:
        raise RunError(
            f"a copy of this {plan.architecture!r} without noise computes something else: logits "
            f"differ by {worst:.1e}, more than {bound:.1e}. Nothing was published. Set "
            "symmetry=none, and report the model's configuration"
        )
    return worst


def probe_logits(model: torch.nn.Module, weights: Weights) -> Iterator[Tensor]:
    """Logits of every probe, without those at padding."""
    config: Any = model.config
    device = next(iter(weights.values())).device
    ids = torch.randint(
        0, int(config.vocab_size), (2, _LENGTH), generator=generator(0, "copies", "probe")
    ).to(device)
    for mask in _masks(device):
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        given = {"attention_mask": mask, "position_ids": positions}
        logits = _call(model, weights, {"input_ids": ids, **given, "use_cache": False}).logits
        yield logits[mask.bool()].float()
    yield from _cached(model, weights, ids)


def _masks(device: torch.device) -> Iterator[Tensor]:
    """One row whole and one padded, on the left and on the right."""
    for padded in (slice(0, _PADDED), slice(_LENGTH - _PADDED, _LENGTH)):
        mask = torch.ones(2, _LENGTH, dtype=torch.int64, device=device)
        mask[1, padded] = 0
        yield mask


def _cached(model: torch.nn.Module, weights: Weights, ids: Tensor) -> Iterator[Tensor]:
    """A left-padded prompt, then one token at a time."""
    mask = next(_masks(ids.device))
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    name, cache, start = _cache_argument(model), None, 0
    for end in range(_LENGTH - _NEW, _LENGTH + 1):
        given = {
            "input_ids": ids[:, start:end],
            "attention_mask": mask[:, :end],
            "position_ids": positions[:, start:end],
            name: cache,
            "use_cache": True,
        }
        found = _call(model, weights, given)
        yield found.logits[:, -1].float()
        cache, start = getattr(found, name), end


def _cache_argument(model: torch.nn.Module) -> str:
    """What transformers calls the cache, as argument and in the output; 5.24 renamed it."""
    return "cache" if "cache" in signature(model.forward).parameters else "past_key_values"


def _call(model: torch.nn.Module, weights: Weights, given: Mapping[str, Any]) -> Any:
    return functional_call(model, weights, (), dict(given), strict=False)

"""Invented forward passes that hold whatever any objective may ask for."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from fedunlearn.objectives import OBJECTIVES, Objective, ObjectiveInputs
from fedunlearn.objectives.likelihood import IGNORED
from fedunlearn.seeding import generator

WORDS, WIDTH = 11, 8
RETAIN = [
    {},
    {"retain_term": "nll", "retain_weight": 0.7},
    {"retain_term": "kl", "retain_reduction": "token", "forget_weight": 0.3},
]
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "dpo": [{"two_over_beta": True}],
    "grad_ascent": [{"reduction": "token"}],
    "grad_diff": [{"reduction": "token"}],
    "npo": [{"beta": 2.0}],
    "rmu": [{"retain_term": "hidden", "retain_weight": 3.0}],
    "satimp": [{"reduction": "token"}, {"beta1": 0.5, "beta2": 0.0}],
    "simnpo": [{"gamma": 0.5}, {"gamma": 0.5, "margin": "inside"}],
    "undial": [
        {"positions": "all"},
        {"positions": "all", "reduction": "token"},
        {"reduction": "token"},
    ],
    "wga": [{"reduction": "token"}, {"beta": 0.0}],
}


def variants(name: str) -> list[dict[str, Any]]:
    """Settings under which an entry keeps its contracts: defaults, retain terms, options."""
    common: list[dict[str, Any]] = RETAIN if OBJECTIVES[name].role == "forget" else [{}]
    return [*common, *VARIANTS.get(name, [])]


CASES = [(name, options) for name in OBJECTIVES for options in variants(name)]


def bound(name: str, options: dict[str, Any] | None = None) -> Objective:
    """Build an entry with its random parts drawn."""
    return OBJECTIVES.build(name, options or {}).bind(generator(0, name), WIDTH)


def one_pass(draw: torch.Generator, batch: int = 3, length: int = 5) -> ObjectiveInputs:
    """A pass over sequences of different lengths; the first label of each is ignored."""
    logits, reference = torch.randn(2, batch, length, WORDS, generator=draw)
    hidden, reference_hidden = torch.randn(2, batch, length + 1, WIDTH, generator=draw)
    real = torch.randint(3, length + 2, (batch,), generator=draw)
    mask = torch.arange(length + 1) < real[:, None]
    labels = torch.randint(WORDS, (batch, length), generator=draw)
    labels[:, 0] = IGNORED
    return ObjectiveInputs(
        logits.requires_grad_(),
        labels.masked_fill(~mask[:, 1:], IGNORED),
        reference_log_probs=torch.randn(batch, generator=draw) - 9,
        hidden=hidden.requires_grad_(),
        token_mask=mask,
        reference_logits=reference,
        reference_hidden=reference_hidden,
    )


def inputs(*, seed: int = 0, batch: int = 3, length: int = 5) -> ObjectiveInputs:
    """Everything at once: the client's data, preferred answers, retained records."""
    draw = torch.Generator().manual_seed(seed)
    main, preferred, retain = (one_pass(draw, batch, length + more) for more in range(3))
    return replace(main, preferred=preferred, retain=retain)


def mapped(
    given: ObjectiveInputs, change: Callable[[str, Tensor], Tensor], **more: Any
) -> ObjectiveInputs:
    """Change every tensor of a pass and of the passes below it, by field name."""
    found: dict[str, Any] = {}
    for field in fields(ObjectiveInputs):
        value = getattr(given, field.name)
        if isinstance(value, Tensor):
            found[field.name] = change(field.name, value)
        elif isinstance(value, ObjectiveInputs):
            found[field.name] = mapped(value, change)
    return ObjectiveInputs(**{**found, **more})

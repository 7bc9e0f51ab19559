"""Tries a merged update on the live model without loading it again."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedunlearn.errors import InputError


@contextmanager
def applied(model: PreTrainedModel, delta: Mapping[str, Tensor]) -> Iterator[PreTrainedModel]:
    """Add ``delta`` to the weights for the length of the block, then restore the exact bits.

    The sum is taken in float32 and rounded once to the weight's dtype.

    Args:
        model: the base model.
        delta: base parameter name to dense update of the same shape.

    Raises:
        InputError: a name or shape that the model does not have; no weight is changed.
    """
    parameters = dict(model.named_parameters())
    check_fit(model, delta)
    before = {name: parameters[name].detach().clone() for name in delta}
    try:
        add(model, delta)
        yield model
    finally:
        with torch.no_grad():
            for name, original in before.items():
                parameters[name].copy_(original)


def check_fit(model: PreTrainedModel, delta: Mapping[str, Tensor]) -> None:
    """Check that every update fits a weight.

    Raises:
        InputError: a name or shape that the model does not have.
    """
    parameters = dict(model.named_parameters())
    for name, update in delta.items():
        if name not in parameters or parameters[name].shape != update.shape:
            raise InputError(f"update for {name!r} of shape {tuple(update.shape)} fits no weight")


@torch.no_grad()
def add(model: PreTrainedModel, delta: Mapping[str, Tensor]) -> None:
    """Add updates that fit to the weights for good, in float32, rounded once."""
    parameters = dict(model.named_parameters())
    for name, update in delta.items():
        parameters[name].copy_(patched(parameters[name], update))


def patched(weight: Tensor, update: Tensor) -> Tensor:
    """Return what :func:`applied` makes of a weight: the float32 sum, rounded to its dtype."""
    return (weight.float() + update.to(weight.device, torch.float32)).to(weight.dtype)

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
    for name, update in delta.items():
        if name not in parameters or parameters[name].shape != update.shape:
            raise InputError(f"update for {name!r} of shape {tuple(update.shape)} fits no weight")
    before = {name: parameters[name].detach().clone() for name in delta}
    try:
        with torch.no_grad():
            for name, update in delta.items():
                weight = parameters[name]
                weight.copy_(patched(weight, update))
        yield model
    finally:
        with torch.no_grad():
            for name, original in before.items():
                parameters[name].copy_(original)


def patched(weight: Tensor, update: Tensor) -> Tensor:
    """Return what :func:`applied` makes of a weight: the float32 sum, rounded to its dtype."""
    return (weight.float() + update.to(weight.device, torch.float32)).to(weight.dtype)

"""A model with its weights rounded for the length of a block, as it would be when deployed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils.import_utils import is_bitsandbytes_available

from fedunlearn.errors import InputError
from fedunlearn.tensors.rounding import absmax_int8

Format = Literal["bfloat16", "int8", "nf4"]


def reason_against(form: Format) -> str | None:
    """Say why weights cannot be rounded to a format here; ``None``: they can."""
    if form == "nf4" and not is_bitsandbytes_available():
        return "nf4 needs the package bitsandbytes, which is not installed"
    return None


@contextmanager
def rounded(model: PreTrainedModel, form: Format) -> Iterator[None]:
    """Round weights to ``form`` and back for the length of the block, then restore the exact bits.

    ``bfloat16`` rounds every weight; ``int8`` (absmax, a scale for each output) and ``nf4``
    (bitsandbytes, blocks of 64) those of linear layers less the output embedding, which
    bitsandbytes leaves alone, too. Products are computed in the model's own dtype with the
    rounded weights; of bitsandbytes only rounding is used, never its layers, so the CPU path
    that :func:`fedunlearn.models.quantized.guard_cpu` switches off is not there at all.

    Limitations:
        The weights before are kept in memory. Activations are not quantised.

    Raises:
        InputError: the format needs a package that is not here.
    """
    if reason := reason_against(form):
        raise InputError(reason)
    before: list[tuple[Tensor, Tensor]] = []
    try:
        with torch.no_grad():
            for weight, channel in list(_weights(model, form)):
                before.append((weight, weight.detach().clone()))
                weight.copy_(_round(weight, form, channel))
        yield
    finally:
        with torch.no_grad():
            for weight, original in before:
                weight.copy_(original)


def _weights(model: PreTrainedModel, form: Format) -> Iterator[tuple[Tensor, int]]:
    """What is rounded, each once, with the dimension of its outputs."""
    if form == "bfloat16":
        yield from ((weight, 0) for weight in model.parameters())
        return
    live = cast(Any, model)
    ends = (live.get_output_embeddings(), live.get_input_embeddings())
    shared = {id(one.weight) for one in ends if one is not None}
    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear | Conv1D):
            weight = module.weight
            if id(weight) not in shared | seen:
                seen.add(id(weight))
                yield weight, 1 if isinstance(module, Conv1D) else 0


def _round(weight: Tensor, form: Format, channel: int) -> Tensor:
    if form == "bfloat16":
        return weight.bfloat16().to(weight.dtype)
    if form == "int8":
        return absmax_int8(weight, channel=channel)
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    turned = weight.detach().mT.contiguous() if channel else weight.detach().contiguous()
    found: Tensor = dequantize_4bit(*quantize_4bit(turned, quant_type="nf4"))
    return found.mT if channel else found

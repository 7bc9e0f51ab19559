"""Checks on the tensors of one summary; each fault is named with its tensor."""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

import torch
from torch import Tensor

from fedunlearn.errors import SummaryError
from fedunlearn.models.plain_lora import LoraLayout
from fedunlearn.registry import nearest
from fedunlearn.summary.layout import adapter_keys, layout_line, module_name, parameter_name
from fedunlearn.tensors.bits import finite_and_non_negative

ADAPTER_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FISHER_DTYPE = torch.bfloat16


def check_keys(adapter: Collection[str], fisher: Collection[str]) -> None:
    """Check that the adapter has an A and a B for each Fisher tensor, and nothing else.

    Raises:
        SummaryError: a missing, extra or renamed key.
    """
    if not adapter:
        raise SummaryError("the adapter has no tensor")
    for name in fisher:
        module_name(name)
    adapted = {parameter_name(key) for key in adapter}
    for name in sorted(adapted - set(fisher)):
        raise SummaryError(f"there is no Fisher for {name!r}{nearest(name, list(fisher))}")
    for name in sorted(set(fisher) - adapted):
        raise SummaryError(f"Fisher {name!r} has no adapter{nearest(name, list(adapted))}")
    for key in sorted({key for name in fisher for key in adapter_keys(name)} - set(adapter)):
        raise SummaryError(f"adapter tensor {key!r} is missing")


def check_tensors(
    adapter: Mapping[str, Tensor], fisher: Mapping[str, Tensor], lora: LoraLayout
) -> list[str]:
    """Check shapes, dtypes and values, reading one weight at a time.

    Returns:
        The lines of the layout (:func:`~fedunlearn.summary.layout.layout_line`).

    Raises:
        SummaryError: a wrong shape or dtype, a NaN or an infinity, a negative Fisher, or an
            adapter that is exactly zero everywhere.
    """
    lines, moved = [], False
    for name in sorted(fisher):
        key_a, key_b = adapter_keys(name)
        a, b, diagonal = adapter[key_a], adapter[key_b], fisher[name]
        factors = {key_a: a, key_b: b}
        scaling = lora.scaling_of(module_name(name))
        for fault in chain(
            _tensor_faults(factors, diagonal, name=name),
            _shape_faults(a, b, diagonal, lora=lora, name=name),
            _value_faults(factors, diagonal, scaling=scaling, name=name),
        ):
            raise SummaryError(fault)
        moved = moved or (bool(a.count_nonzero()) and bool(b.count_nonzero()))
        lines.append(layout_line(name, diagonal))
    if not moved:
        raise SummaryError("the adapter is exactly zero: training did not reach it")
    return lines


def _tensor_faults(factors: Mapping[str, Tensor], fisher: Tensor, *, name: str) -> Iterator[str]:
    for key, factor in factors.items():
        if factor.dtype not in ADAPTER_DTYPES:
            yield f"adapter tensor {key!r} has dtype {factor.dtype}, expected a float of <= 32 bits"
        if factor.ndim != 2 or not factor.numel():
            yield f"adapter tensor {key!r} has shape {tuple(factor.shape)}, expected two dimensions"
    if fisher.dtype != FISHER_DTYPE:
        yield f"Fisher {name!r} has dtype {fisher.dtype}, expected {FISHER_DTYPE}"


def _shape_faults(
    a: Tensor, b: Tensor, fisher: Tensor, *, lora: LoraLayout, name: str
) -> Iterator[str]:
    rank = lora.rank_of(module_name(name))
    if (a.shape[0], b.shape[1]) != (rank, rank):
        yield (
            f"{name!r} has factors A {tuple(a.shape)} and B {tuple(b.shape)}, but its "
            f"adapter_config gives it rank {rank}"
        )
    dense = (a.shape[1], b.shape[0]) if lora.transposed else (b.shape[0], a.shape[1])
    if tuple(fisher.shape) != dense:
        yield f"Fisher {name!r} has shape {tuple(fisher.shape)}, its adapter makes {dense}"


def _value_faults(
    factors: Mapping[str, Tensor], fisher: Tensor, *, scaling: float, name: str
) -> Iterator[str]:
    named = {f"adapter tensor {key!r}": factor for key, factor in factors.items()}
    fisher_label = f"Fisher {name!r}"
    if not finite_and_non_negative(fisher):  # a quick look; what is wrong is found out below
        named[fisher_label] = fisher
    for label, tensor in named.items():
        if bool(tensor.isnan().any()):
            yield f"{label} contains NaN"
        if bool(tensor.isinf().any()):
            yield f"{label} contains an infinity"
    a, b = (factor.double().abs().amax().item() for factor in factors.values())
    rank = next(iter(factors.values())).shape[0]
    if abs(scaling) * rank * a * b > torch.finfo(torch.float32).max:
        yield f"the update of {name!r} overflows float32: training diverged"
    if fisher_label in named and bool((fisher < 0).any()):
        yield f"{fisher_label} has negative entries; squares of gradients have none"

"""Norms of a summary's tensors, and a summary whose tensors are scaled down."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from fedunlearn.outliers import Norms
from fedunlearn.summary.client_summary import ClientSummary
from fedunlearn.summary.layout import adapter_keys, module_name
from fedunlearn.tensors.low_rank import task_vector_norm
from fedunlearn.tensors.sums import norm

TASK_VECTOR, FISHER = "task vector", "Fisher"


def norms_of(summary: ClientSummary) -> Norms:
    """Euclidean norms of every task vector and Fisher tensor, by base parameter name."""
    vectors, fishers = {}, {}
    for name in summary.weights():
        key_a, key_b = adapter_keys(name)
        scaling = summary.lora.scaling_of(module_name(name))
        vectors[name] = task_vector_norm(summary.adapter[key_a], summary.adapter[key_b], scaling)
        fishers[name] = norm(summary.fisher[name])
    meta = summary.meta
    parts = {TASK_VECTOR: vectors, FISHER: fishers}
    return Norms(meta.client_id, meta.role, meta.domain, parts)


def scaled(
    summary: ClientSummary, *, vectors: Mapping[str, float], fishers: Mapping[str, float]
) -> ClientSummary:
    """Scale task vectors (their B) and Fishers, each rounded to its own dtype.

    Args:
        summary: is not changed.
        vectors: base parameter name to factor; the empty name is for those not named.
        fishers: likewise.
    """
    adapter: dict[str, Tensor] = dict(summary.adapter)
    fisher: dict[str, Tensor] = dict(summary.fisher)
    for name in summary.weights():
        key_b = adapter_keys(name)[1]
        adapter[key_b] = scaled_tensor(adapter[key_b], name, vectors)
        fisher[name] = scaled_tensor(fisher[name], name, fishers)
    return replace(summary, adapter=adapter, fisher=fisher)


def scaled_tensor(tensor: Tensor, name: str, factors: Mapping[str, float]) -> Tensor:
    """Scale by the smaller of the tensor's own factor and the one for all."""
    factor = min(factors.get(name, 1.0), factors.get("", 1.0))
    return tensor if factor == 1.0 else (tensor.double() * factor).to(tensor.dtype)

"""An update on top of an expert: as one adapter, or as one dense update of the backbone."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from fedunlearn.models.expert import Expert
from fedunlearn.summary.layout import adapter_keys, module_name, parameter_name
from fedunlearn.tensors.low_rank import task_vector


def join_expert(
    factors: Mapping[str, Tensor], expert: Expert
) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Add two adapters exactly: ``B_u A_u + s B_e A_e = [B_u, s B_e] [A_u; A_e]``.

    Args:
        factors: PEFT state-dict key to the update's factors, of scaling 1.
        expert: brings its own scaling, which goes into its B.

    Returns:
        The joint factors, of scaling 1, and base parameter name to joint rank.
    """
    joint: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    for name in sorted({parameter_name(key) for key in (*factors, *expert.weights)}):
        key_a, key_b = adapter_keys(name)
        parts = [(factors[key_a], factors[key_b])] if key_a in factors else []
        if key_a in expert.weights:
            scaling = expert.lora.scaling_of(module_name(name))
            parts.append((expert.weights[key_a], expert.weights[key_b] * scaling))
        joint[key_a] = torch.cat([a for a, _ in parts])
        joint[key_b] = torch.cat([b for _, b in parts], dim=1)
        ranks[name] = joint[key_a].shape[0]
    return joint, ranks


class OnExpert(Mapping[str, Tensor]):
    """Dense sum of expert and update, one weight in memory at a time.

    Args:
        delta: base parameter name to update dW of the base weight's shape.
        expert: what it comes on top of.
    """

    def __init__(self, delta: Mapping[str, Tensor], expert: Expert) -> None:
        self._delta, self._expert = delta, expert
        self._taught = {parameter_name(key) for key in expert.weights}
        self._names = sorted(self._taught | set(delta))

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._taught:
            return self._delta[name]
        key_a, key_b = adapter_keys(name)
        lora, weights = self._expert.lora, self._expert.weights
        scaling = lora.scaling_of(module_name(name))
        taught = task_vector(weights[key_a], weights[key_b], scaling, transposed=lora.transposed)
        return taught + self._delta[name] if name in self._delta else taught

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

"""What a round publishes and what it makes of the updates: MPU, and the paper's two baselines."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from fedunlearn.copies.factory import CopyFactory, Factors, noised_baseline
from fedunlearn.copies.harmonic import Shares, client_shares, harmonic_shares
from fedunlearn.copies.plan import CopyPlan
from fedunlearn.copies.secret import RoundSecret
from fedunlearn.copies.settings import CopySettings

Scheme = Literal["mpu", "noised", "clean"]


class OpenRound(ABC):
    """One round of one scheme: what is published, in which coordinates, with which weights."""

    @abstractmethod
    def publish(self, copy: int) -> Iterator[tuple[str, Tensor]]:
        """Make copy ``copy``, from 1, tensor by tensor."""

    @abstractmethod
    def shares(self, clients: Mapping[str, float]) -> Shares:
        """Weight of each client's displacement from each copy; they sum to 1."""

    def undo(self, copy: int, displacement: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Map a displacement into the server's coordinates."""
        yield from displacement.items()

    def undo_lora(self, copy: int, factors: Factors) -> Factors:
        """Map an adapter's factors into the server's coordinates."""
        return factors

    def start(self) -> Iterator[tuple[str, Tensor]]:
        """Weights that the average is added to, where they are not the server's own."""
        return iter(())

    def facts(self, copy: int) -> dict[str, Any]:
        """What a copy's noise amounts to, for the report."""
        return {}


class MpuRound(OpenRound):
    """Perturbed, reparameterised copies; their harmonic average (eq. 1, 9, 10)."""

    def __init__(self, factory: CopyFactory) -> None:
        self._factory = factory

    def publish(self, copy: int) -> Iterator[tuple[str, Tensor]]:
        """``T(theta + eps)``."""
        return self._factory.publish(copy)

    def shares(self, clients: Mapping[str, float]) -> Shares:
        """``(1 / alpha_k) / sum(1 / alpha_j)``, shared out between clients."""
        return harmonic_shares(self._factory.settings.scales, clients)

    def undo(self, copy: int, displacement: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Apply the inverse of T."""
        return self._factory.undo(copy, displacement)

    def undo_lora(self, copy: int, factors: Factors) -> Factors:
        """Apply it to the factors."""
        return self._factory.undo_lora(copy, factors)

    def facts(self, copy: int) -> dict[str, Any]:
        """Sigmas, and what rounding leaves of them."""
        return self._factory.facts(copy).to_json()


class CleanRound(OpenRound):
    """The weights as they are: no noise, no symmetry, one copy (section 5.1)."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights

    def publish(self, copy: int) -> Iterator[tuple[str, Tensor]]:
        """Theta itself."""
        for name, weight in self._weights.items():
            yield name, weight.detach().to("cpu", torch.float32, copy=True)

    def shares(self, clients: Mapping[str, float]) -> Shares:
        """One copy, shared out between clients."""
        return client_shares(clients)


class NoisedRound(OpenRound):
    """One copy with as much noise as MPU's have on average; it stays in the model (section 5.1)."""

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
        self._made_of = (plan, settings, weights, reference, secret)
        self._round = server_round

    def publish(self, copy: int) -> Iterator[tuple[str, Tensor]]:
        """Theta and noise."""
        return noised_baseline(*self._made_of, server_round=self._round)

    def shares(self, clients: Mapping[str, float]) -> Shares:
        """One copy, shared out between clients."""
        return client_shares(clients)

    def start(self) -> Iterator[tuple[str, Tensor]]:
        """The noisy copy, once more: the same bits."""
        return self.publish(1)

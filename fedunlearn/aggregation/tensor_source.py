"""Hands the summaries of a round to the merge, one weight at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedunlearn.merging import Contribution, TensorInputs
from fedunlearn.summary import ClientSummary, check_consistent


@dataclass(frozen=True)
class SparseFisher:
    """A processed Fisher diagonal without its zeros: with alpha = 0.1 a third of the memory.

    Attributes:
        shape: of the dense diagonal.
        places: flat indices of the entries kept, int64.
        values: those entries, float32.
    """

    shape: torch.Size
    places: Tensor
    values: Tensor

    @classmethod
    def of(cls, dense: Tensor) -> "SparseFisher":
        """Drop the zeros."""
        flat = dense.reshape(-1)
        places = flat.nonzero().squeeze(1)
        return cls(dense.shape, places, flat[places])

    def dense(self) -> Tensor:
        """Put the zeros back; bit for bit what :meth:`of` was given."""
        flat = torch.zeros(self.shape.numel(), dtype=self.values.dtype)
        flat[self.places] = self.values
        return flat.reshape(self.shape)


class TensorSource:
    """The summaries of a round, by weight, with the retain clients' processed Fishers remembered.

    Args:
        summaries: in any order; checked against each other.
        alpha: fraction of Fisher entries kept (eq. 3).
        eps0: stabiliser of eq. 3 and eq. 4.
        remember: keep the processed Fishers of all weights and not just the last.

    Raises:
        SummaryError: summaries that do not belong together.
    """

    def __init__(
        self, summaries: Sequence[ClientSummary], *, alpha: float, eps0: float, remember: bool
    ) -> None:
        self.summaries = check_consistent(summaries)
        self.alpha, self.eps0 = alpha, eps0
        self._remember = remember
        self._retained: dict[str, tuple[SparseFisher, ...]] = {}

    @property
    def names(self) -> list[str]:
        """Base parameter names, sorted."""
        return self.summaries[0].weights()

    @property
    def retain_ids(self) -> tuple[str, ...]:
        """Retain clients, in the order of their ids."""
        return tuple(s.meta.client_id for s in self.summaries if s.meta.role == "retain")

    def inputs(self, name: str, *, forget_fisher: bool) -> TensorInputs:
        """All clients' parts in one weight.

        Args:
            name: base parameter name.
            forget_fisher: also read the Fishers of forget clients.
        """
        parts = (
            self._contribution(summary, name, with_fisher=forget_fisher)
            for summary in self.summaries
        )
        return TensorInputs(name, tuple(parts), alpha=self.alpha, eps0=self.eps0)

    def retain_fishers(self, name: str, inputs: TensorInputs | None = None) -> list[Tensor]:
        """Processed Fishers (eq. 3) of the retain clients, in the order of their ids.

        Args:
            name: base parameter name.
            inputs: of that weight, if the caller has them, to process no Fisher twice.
        """
        if name not in self._retained:
            sources = (inputs or self.inputs(name, forget_fisher=False)).retain_clients
            if not self._remember:
                self._retained.clear()
            self._retained[name] = tuple(SparseFisher.of(source.fisher) for source in sources)
        return [fisher.dense() for fisher in self._retained[name]]

    def _contribution(
        self, summary: ClientSummary, name: str, *, with_fisher: bool
    ) -> Contribution:
        meta = summary.meta
        fisher = summary.fisher[name].float() if with_fisher or meta.role == "retain" else None
        return Contribution(
            client_id=meta.client_id,
            role=meta.role,
            domain=meta.domain,
            task_vector=summary.task_vector(name),
            fisher=fisher,
            factors=summary.factors(name),
        )

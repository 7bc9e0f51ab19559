"""Hands the summaries of a round to the merge, one weight at a time."""

from collections.abc import Sequence

from fedunlearn.merging import Contribution, TensorInputs
from fedunlearn.summary import ClientSummary, check_consistent
from fedunlearn.tensors.low_rank import LowRank


class TensorSource:
    """The summaries of a round, by weight.

    Args:
        summaries: in any order; checked against each other.
        alpha: fraction of Fisher entries kept (eq. 3).
        eps0: stabiliser of eq. 3 and eq. 4.

    Raises:
        SummaryError: summaries that do not belong together.
    """

    def __init__(self, summaries: Sequence[ClientSummary], *, alpha: float, eps0: float) -> None:
        self.summaries = check_consistent(summaries)
        self.alpha, self.eps0 = alpha, eps0

    @property
    def names(self) -> list[str]:
        """Base parameter names, sorted."""
        return self.summaries[0].weights()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Base parameter name to the shape of the weight."""
        return self.summaries[0].shapes()

    @property
    def retain_ids(self) -> tuple[str, ...]:
        """Retain clients, in the order of their ids."""
        return tuple(s.meta.client_id for s in self.summaries if s.meta.role == "retain")

    def inputs(self, name: str, *, forget_fisher: bool) -> TensorInputs:
        """All clients' parts in one weight, read when their rows are asked for.

        Args:
            name: base parameter name.
            forget_fisher: also the Fishers of forget clients.
        """
        parts = (
            self._contribution(summary, name, with_fisher=forget_fisher)
            for summary in self.summaries
        )
        return TensorInputs(name, tuple(parts), alpha=self.alpha, eps0=self.eps0)

    def _contribution(
        self, summary: ClientSummary, name: str, *, with_fisher: bool
    ) -> Contribution:
        meta = summary.meta
        wanted = with_fisher or meta.role == "retain"
        return Contribution(
            client_id=meta.client_id,
            role=meta.role,
            domain=meta.domain,
            update=LowRank(*summary.factors(name)),
            fisher=summary.fisher[name] if wanted else None,
        )

"""What both strategies have in common: Flower's evaluation is not used."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy


class TrainOnly(Strategy):
    """A strategy whose Flower rounds have no evaluation; it is the server's, on sets it holds."""

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nothing: evaluation is the server's, on sets it holds."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return nothing, as nothing was asked."""
        return None

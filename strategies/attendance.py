"""Who takes part: waits for the nodes, asks each who it is, and checks the answers."""

from collections.abc import Iterable, Sequence

from flwr.serverapp import Grid

from fedunlearn.events import EventLog
from fedunlearn.rounds import (
    Addressee,
    ClientFailure,
    Identity,
    Roster,
    RoundOutcome,
    RoundRules,
    check_policy,
    decide,
)
from strategies import records
from strategies.exchange import Patience, Question, ask, wait_for_nodes
from strategies.reception import shake_hands


class Attendance:
    """The handshake of a run, done once; a node may answer for several clients.

    Args:
        rules: limits, and whether a run without some clients counts.
        events: gets the nodes and the clients.
        patience: how to wait.
        expected: the run's clients; empty to accept whoever answers.
        num_clients: how many those are, when ``expected`` does not say it.
        num_nodes: nodes to wait for; by default as many as clients are expected. When neither
            is given, those that come within ``rules.nodes_s`` take part.
        salt: clients key the digests of their data with it.

    Attributes:
        roster: who takes part; empty before :meth:`take`.
        absent: who was expected and does not.
    """

    def __init__(
        self,
        *,
        rules: RoundRules,
        events: EventLog,
        patience: Patience,
        expected: Sequence[Identity] = (),
        num_clients: int | None = None,
        num_nodes: int | None = None,
        salt: str = "",
    ) -> None:
        self.salt = salt
        self.rules, self.events, self.patience = rules, events, patience
        self.roster = Roster(())
        self.absent: tuple[ClientFailure, ...] = ()
        self._expected = tuple(expected)
        self._num_clients = num_clients or len(self._expected) or None
        self._num_nodes = num_nodes or self._num_clients

    def take(self, grid: Grid) -> Roster:
        """Ask every node who it is.

        Raises:
            RunError: the clients do not fit together; or an expected one failed or did not
                answer and ``allow_partial`` is off.
        """
        nodes = wait_for_nodes(
            grid, self._num_nodes, limit_s=self.rules.nodes_s, patience=self.patience
        )
        self.events.event("nodes", present=len(nodes), expected=self._num_nodes)
        question = Question(
            "query", lambda _, seconds: records.query_content(seconds, self.salt), "handshake"
        )
        who = [Addressee(node) for node in nodes]
        answers = ask(grid, who, question, limit_s=self.rules.handshake_s, patience=self.patience)
        self.roster, self.absent = shake_hands(
            answers,
            self._expected,
            wanted=self._num_clients,
            asked=max(len(nodes), self._num_nodes or 0),
        )
        clients = [vars(hello) for hello in self.roster.hellos]
        self.events.event("handshake", salt=self.salt, clients=clients)
        self.log("client_absent", self.absent)
        heard = tuple(hello.client_id for hello in self.roster.hellos)
        decide(RoundOutcome(heard, self.absent), allow_partial=self.rules.allow_partial)
        check_policy(self.roster.hellos, self.absent, self.rules)
        return self.roster

    def log(self, event: str, failures: Iterable[ClientFailure]) -> None:
        """Note failures, one event each."""
        for failure in failures:
            self.events.event(event, **vars(failure))

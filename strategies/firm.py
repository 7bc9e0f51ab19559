"""FIRM as a Flower strategy: one handshake, one training round, one merge on the server.

Method: each client uploads once a LoRA adapter (its task vector) and the Fisher diagonal of its
data; the server pools, merges and projects (eq. 2 to 8). The mathematics is in
:mod:`fedunlearn.aggregation`; this file moves records, compares what came with what the handshake
promised, and names who is missing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedunlearn.aggregation import MergeSettings, merge_summaries
from fedunlearn.errors import RunError, SummaryError
from fedunlearn.events import EventLog
from fedunlearn.instructions import encode_instructions
from fedunlearn.rounds import (
    Addressee,
    ClientFailure,
    Hello,
    Identity,
    Roster,
    RoundOutcome,
    RoundRules,
    decide,
    odd_layouts,
)
from fedunlearn.summary import open_summaries
from fedunlearn.training.client_settings import ClientInstructions
from strategies import records
from strategies.attendance import Attendance
from strategies.exchange import Answer, Patience, Question, ask, from_replies
from strategies.reception import accept
from strategies.spool import Spool

LATE = "its summary did not come before the deadline"
ODD = "its summary adapts other weights than those of most clients"


class FirmStrategy(Strategy):
    """Collects one summary from every client of a run.

    :meth:`run` is the whole round with bounded waits. Flower's own ``start(..., num_rounds=1)``
    works too, with the same checks, but holds all replies in memory at once and gives no second
    chance to clients whose worker was already dead.

    Args:
        instructions: what every client is told.
        run_dir: the run's folder; summaries go to ``summaries/<client_id>`` below it.
        rules: limits, and whether a partial round counts.
        events: gets one event for each reply and failure.
        patience: how to wait.
        expected: the run's clients; empty to accept whoever answers.
        num_clients: how many those are, when ``expected`` does not say it.
        num_nodes: nodes to wait for; by default as many as clients are expected. When neither
            is given, those that come within ``rules.nodes_s`` take part.
        merge: what :meth:`aggregate_train` merges with; ``None`` leaves merging to the caller.

    Attributes:
        outcome: what came of the round, once it is over.
        warnings: what the report must say of it, see :func:`decide`.
    """

    def __init__(
        self,
        instructions: ClientInstructions,
        *,
        run_dir: Path,
        rules: RoundRules,
        events: EventLog,
        patience: Patience,
        expected: Sequence[Identity] = (),
        num_clients: int | None = None,
        num_nodes: int | None = None,
        merge: MergeSettings | None = None,
    ) -> None:
        self.instructions = instructions
        self.rules = rules
        self.events = events
        self.patience = patience
        self.attendance = Attendance(
            rules=rules,
            events=events,
            patience=patience,
            expected=expected,
            num_clients=num_clients,
            num_nodes=num_nodes,
        )
        self.merge = merge
        self.spool = Spool(run_dir)
        self.outcome: RoundOutcome | None = None
        self.warnings: tuple[str, ...] = ()

    @property
    def roster(self) -> Roster:
        """Who takes part; nobody before the handshake."""
        return self.attendance.roster

    def run(self, grid: Grid) -> RoundOutcome:
        """Do the round and return what came of it; the summaries then lie in ``summaries``.

        Raises:
            InputError: the run's folder already holds summaries.
            RunError: a client is missing or failed and ``allow_partial`` is off, or the clients
                do not fit together.
        """
        roster = self.handshake(grid)
        limit = self.rules.deadline_s
        who = roster.addressees
        answers = ask(grid, who, self._task(1), limit_s=limit, patience=self.patience)
        return self._collect(answers)

    def handshake(self, grid: Grid) -> Roster:
        """Ask every node who it is.

        Raises:
            InputError: the run's folder already holds summaries.
            RunError: the clients do not fit together; or an expected one failed or did not
                answer and ``allow_partial`` is off.
        """
        self.spool.prepare()
        return self.attendance.take(grid)

    def _task(self, server_round: int) -> Question:
        def content(addressee: Addressee, seconds: float) -> RecordDict:
            told = replace(self.instructions, server_round=server_round)
            if self.roster.is_pooled(addressee):
                told = replace(told, fisher_kept=1.0)
            return records.task_content(addressee.client_id, encode_instructions(told), seconds)

        return Question("train", content, str(server_round))

    def _collect(self, answers: Iterable[Answer]) -> RoundOutcome:
        """Take the replies one by one; only one is in memory at a time."""
        layouts: dict[str, str] = {}
        failed: list[ClientFailure] = []
        for answer in answers:
            if (hello := self.roster.find(answer.sender)) is None:
                continue  # written by Flower for a node it cannot name: its client stays missing
            try:
                layouts[hello.client_id] = self._store(hello, answer)
            except SummaryError as fault:
                failed.append(hello.failure(str(fault)))
        failed += self._odd(layouts)
        self.attendance.log("client_failed", failed)
        return self._conclude(sorted(layouts), failed)

    def _store(self, hello: Hello, answer: Answer) -> str:
        summary = accept(hello, answer)
        self.spool.keep(summary)
        meta = summary.meta
        self.events.event(
            "train_reply",
            client_id=meta.client_id,
            role=meta.role,
            domain=meta.domain,
            num_examples=meta.num_examples,
            training=meta.training,
        )
        return meta.layout_digest

    def _odd(self, layouts: dict[str, str]) -> Iterator[ClientFailure]:
        """Take out the clients that adapted other weights than most did."""
        odd = odd_layouts(layouts) if layouts else ()
        for hello in self.roster.hellos:
            if hello.client_id in odd:
                del layouts[hello.client_id]
                yield hello.failure(ODD)

    def _conclude(self, received: Sequence[str], failed: Sequence[ClientFailure]) -> RoundOutcome:
        answered = {*received, *(failure.client_id for failure in failed)}
        silent = [hello for hello in self.roster.hellos if hello.client_id not in answered]
        missing = tuple(hello.failure(LATE) for hello in silent)
        self.attendance.log("client_missing", missing)
        self.spool.publish(received)
        notes = self.roster.lacking(set(received))
        self.outcome = RoundOutcome(
            tuple(received), (*self.attendance.absent, *failed), missing, notes
        )
        self.warnings = decide(self.outcome, allow_partial=self.rules.allow_partial)
        self.events.event("round_done", received=list(received), warnings=list(self.warnings))
        return self.outcome

    # Flower's interface, for those who call Flower's own ``start``.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Shake hands, then ask every client for its summary; ``arrays`` are not sent.

        Raises:
            RunError: as :meth:`handshake`, or a second round is asked for.
        """
        if server_round != 1:
            raise RunError(f"FIRM has one round, but round {server_round} was asked for")
        who = self.handshake(grid).addressees
        return [self._task(server_round).to(one, self.rules.deadline_s) for one in who]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Store the summaries; with ``merge`` set, return the merged update dW by tensor.

        Raises:
            RunError: as :meth:`run`.
        """
        outcome = self._collect(from_replies(replies))
        counts = {"received": len(outcome.received), "absent": len(outcome.absentees)}
        return self.merged(), MetricRecord(dict(counts))

    def merged(self) -> ArrayRecord | None:
        """Merge what lies in ``summaries``: base parameter name to dense dW, float32."""
        if self.merge is None:
            return None
        delta = merge_summaries(open_summaries(self.spool.summaries), self.merge).delta
        return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in sorted(delta.items())})

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

    def summary(self) -> None:
        """Note the strategy's rules in the event log."""
        self.events.event("strategy", name=type(self).__name__, **vars(self.rules))

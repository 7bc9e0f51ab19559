"""FIRM as a Flower strategy: one handshake, one training round, one merge on the server.

Method: each client uploads once a LoRA adapter (its task vector) and the Fisher diagonal of its
data; the server pools, merges and projects (eq. 2 to 8). The mathematics is in
:mod:`fedunlearn.aggregation`; this file moves records, compares what came with what the handshake
promised, and names who is missing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedunlearn.aggregation import MergeSettings, merge_summaries
from fedunlearn.errors import RunError, SummaryError
from fedunlearn.events import EventLog
from fedunlearn.instructions import encode_instructions
from fedunlearn.models.plain_lora import read_lora
from fedunlearn.outliers import Norms
from fedunlearn.rounds import (
    Addressee,
    ClientFailure,
    Hello,
    Identity,
    Roster,
    RoundOutcome,
    RoundRules,
    check_policy,
    decide,
    odd_layouts,
)
from fedunlearn.summary import (
    ClientSummary,
    load_summary,
    norms_of,
    open_summaries,
    summary_form,
    upload_bytes,
    wire_bytes,
)
from fedunlearn.training.client_settings import ClientInstructions
from strategies import records
from strategies.attendance import Attendance
from strategies.exchange import Answer, Patience, Question, ask, from_replies
from strategies.outlying import Outlying
from strategies.reception import Asked, accept, refuse_other
from strategies.spool import Spool
from strategies.train_only import TrainOnly

LATE = "its summary did not come before the deadline"
TWICE = "it sent a second summary, which is ignored"
ODD = "its summary adapts other weights than those of most clients"


class FirmStrategy(TrainOnly):
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
        weights: base parameter name to shape of the weights that ``instructions`` adapt; uploads
            of anything else are refused before they are decoded. ``None``: not known.
        salt: of the round, if it is a new one; clients key the digests of their data with it.

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
        weights: Mapping[str, tuple[int, ...]] | None = None,
        salt: str = "",
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
            salt=salt,
        )
        self.merge = merge
        self._weights = weights
        self._lora = read_lora({"peft_type": "LORA", **instructions.lora.asked()})
        self._form = summary_form(weights, self._lora) if weights is not None else None
        self._layouts: dict[str, str] = {}
        self._norms: dict[str, Norms] = {}
        self._doubts: tuple[str, ...] = ()
        self.spool = Spool(run_dir)
        self.outcome: RoundOutcome | None = None
        self.warnings: tuple[str, ...] = ()

    @property
    def roster(self) -> Roster:
        """Who takes part; nobody before the handshake."""
        return self.attendance.roster

    def run(self, grid: Grid) -> RoundOutcome:
        """Do the round and return what came of it; the summaries then lie in ``summaries``.

        Summaries that an interrupted server left of this very round are used, and their clients
        not asked again.

        Raises:
            InputError: the run's folder already holds summaries.
            RunError: a client is missing or failed and ``allow_partial`` is off, the run's policy
                is not met, or the clients do not fit together. What did come stays spooled.
        """
        roster = self.handshake(grid)
        lacking = [hello for hello in roster.hellos if not self._has(hello)]
        self._refuse_too_large(lacking)
        self.spool.expect({one.client_id: one.data_digest for one in roster.hellos})
        self._log_asked(lacking)
        limit = self.rules.deadline_s
        who = [hello.addressee for hello in lacking]
        answers = ask(grid, who, self._task(1), limit_s=limit, patience=self.patience)
        return self._collect(answers)

    def handshake(self, grid: Grid) -> Roster:
        """Ask every node who it is.

        Raises:
            InputError: the run's folder already holds summaries.
            RunError: the clients do not fit together; or an expected one failed or did not
                answer and ``allow_partial`` is off.
        """
        told = encode_instructions(self.instructions)
        self.attendance.salt = self.spool.prepare(told, self.attendance.salt)
        return self.attendance.take(grid)

    def _refuse_too_large(self, asked: Iterable[Hello]) -> None:
        """Stop before anybody trains, if what a client would send is more than the limit."""
        if self._weights is None or self.rules.max_upload_bytes is None:
            return
        for hello in asked:
            told = self._told(hello.addressee)
            size = upload_bytes(self._weights, self._lora, kept=told.fisher_kept)
            if size > self.rules.max_upload_bytes:
                raise RunError(
                    f"{hello.failure('')}it would send {size:,} bytes, federation.max_upload_bytes "
                    f"is {self.rules.max_upload_bytes:,}: raise it, adapt fewer weights "
                    "(lora.target_modules, lora.layers) or a smaller rank, or send fewer Fisher "
                    "entries (fisher_upload=kept and one client a forget domain)"
                )

    def _log_asked(self, asked: Iterable[Hello]) -> None:
        """Note what every client is sent: the question of the handshake, and the task."""
        question = len(self.attendance.salt)
        for hello in asked:
            told = encode_instructions(self._told(hello.addressee))
            size = len(told.encode()) + 2 * question
            self.events.event("asked", client_id=hello.client_id, bytes=size)

    def _has(self, hello: Hello) -> bool:
        """Take a client's summary from before, or clear it away."""
        summary = self.spool.kept(hello.client_id, hello.data_digest)
        try:
            if summary is None or summary.meta.kept != self._told(hello.addressee).fisher_kept:
                raise SummaryError("it is not there, or of another kind")
            refuse_other(hello, summary)
        except SummaryError:
            self.spool.drop(hello.client_id)
            return False
        self._note(summary, "kept")
        return True

    def _told(self, client: Addressee, server_round: int = 1) -> ClientInstructions:
        told = replace(self.instructions, server_round=server_round)
        return replace(told, fisher_kept=1.0) if self.roster.is_pooled(client) else told

    def _task(self, server_round: int) -> Question:
        def content(addressee: Addressee, seconds: float) -> RecordDict:
            told = encode_instructions(self._told(addressee, server_round))
            return records.task_content(addressee.client_id, told, seconds, self.attendance.salt)

        return Question("train", content, str(server_round))

    def _collect(self, answers: Iterable[Answer]) -> RoundOutcome:
        """Take the replies one by one; only one is in memory at a time."""
        failed: dict[str, ClientFailure] = {}
        for answer in answers:
            if (hello := self.roster.find(answer.sender)) is None:
                continue  # written by Flower for a node it cannot name: its client stays missing
            if hello.client_id in self._norms or hello.client_id in failed:
                self.attendance.log("upload_ignored", [hello.failure(TWICE)])
                continue
            try:
                self._store(hello, answer)
            except SummaryError as fault:
                failed[hello.client_id] = hello.failure(str(fault))
        refused = [*failed.values(), *self._odd(), *self._outliers()]
        self.attendance.log("client_failed", refused)
        return self._conclude(sorted(self._norms), refused)

    def _store(self, hello: Hello, answer: Answer) -> None:
        content = self._task(1).content(hello.addressee, 0.0)
        task = records.task_digest(content)
        summary = accept(hello, answer, Asked(task, self.instructions.lora.asked(), self._form))
        self.spool.keep(summary)
        self._note(summary, "train_reply")

    def _note(self, summary: ClientSummary, event: str) -> None:
        meta = summary.meta
        self._layouts[meta.client_id] = meta.layout_digest
        self._norms[meta.client_id] = norms_of(summary)
        self.events.event(
            event,
            client_id=meta.client_id,
            role=meta.role,
            domain=meta.domain,
            num_examples=meta.num_examples,
            bytes=wire_bytes(summary),
            training=meta.training,
        )

    def _odd(self) -> Iterator[ClientFailure]:
        """Take out the clients that adapted other weights than most did."""
        odd = odd_layouts(self._layouts) if self._layouts else ()
        yield from self._take_out(dict.fromkeys(odd, ODD))

    def _outliers(self) -> Iterator[ClientFailure]:
        """Compare norms; take out or clip outliers, where the rules say so."""
        outlying = Outlying(self.rules, self.events)
        reasons = outlying.judge([*self._norms.values()])
        self._doubts = outlying.warnings
        if self.rules.outliers == "refuse":
            yield from self._take_out(reasons)
        elif self.rules.outliers == "clip":
            for client_id in reasons:
                summary = load_summary(self.spool.incoming / client_id)
                self.spool.keep(outlying.clip_summary(summary))

    def _take_out(self, reasons: Mapping[str, str]) -> Iterator[ClientFailure]:
        for hello in self.roster.hellos:
            if hello.client_id in reasons:
                del self._layouts[hello.client_id], self._norms[hello.client_id]
                self.spool.drop(hello.client_id)
                yield hello.failure(reasons[hello.client_id])

    def _conclude(self, received: Sequence[str], failed: Sequence[ClientFailure]) -> RoundOutcome:
        answered = {*received, *(failure.client_id for failure in failed)}
        silent = [hello for hello in self.roster.hellos if hello.client_id not in answered]
        missing = tuple(hello.failure(LATE) for hello in silent)
        self.attendance.log("client_missing", missing)
        notes = self.roster.lacking(set(received))
        self.outcome = RoundOutcome(
            tuple(received), (*self.attendance.absent, *failed), missing, notes
        )
        told = decide(self.outcome, allow_partial=self.rules.allow_partial)
        delivered = [hello for hello in self.roster.hellos if hello.client_id in self._norms]
        check_policy(delivered, self.outcome.absentees, self.rules)
        self.warnings = (*told, *self._doubts)
        self.spool.publish(received)
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
        for hello in self.roster.hellos:
            self.spool.drop(hello.client_id)
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

    def summary(self) -> None:
        """Note the strategy's rules in the event log."""
        self.events.event("strategy", name=type(self).__name__, **vars(self.rules))

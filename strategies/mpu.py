"""MPU as a Flower strategy: R rounds of m published copies, one copy at a time.

Method: every copy is sent to every client, who unlearn on it; the server undoes the copy's change
of coordinates and averages so that the noise cancels (arXiv 2602.23798, algorithm 1). The
mathematics is in :mod:`fedunlearn.copies`; this file moves records and names who is missing.

An update counts only for the copy it was made from: a reply with another ticket is refused. The
noise cancels only over all copies, so a client that is missing for one of them is asked again, and
if that fails the round fails or, where the run allows it, begins again without that client.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedunlearn.copies.rounds import CopyRounds, PublishedCopy
from fedunlearn.copies.update import CopyTicket, CopyUpdate
from fedunlearn.copies.update_files import UpdateSpool
from fedunlearn.copies.wire import encode_tensors, update_from_wire
from fedunlearn.errors import RunError, SummaryError
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.plain_lora import read_lora
from fedunlearn.outliers import Norms
from fedunlearn.rounds import Addressee, ClientFailure, Hello, Roster, check_policy
from fedunlearn.summary import dense_form, factors_form
from strategies import records
from strategies.attendance import Attendance
from strategies.exchange import Answer, Question, ask, from_replies
from strategies.outlying import Outlying, update_norms
from strategies.train_only import TrainOnly

COPY = "train.copy"
LATE = "its update did not come before the deadline"
_ATTEMPTS = 2


class Instruct(Protocol):
    """Writes what goes with a copy."""

    def __call__(self, ticket: CopyTicket) -> str:
        """JSON of the instructions for one copy."""


class MpuStrategy(TrainOnly):
    """Runs the rounds of one arm.

    :meth:`run` does all rounds with bounded waits. Flower's own ``start`` works too, with
    ``num_rounds`` of rounds times copies, a Flower round being one copy; it holds the replies to a
    copy in memory at once and asks nobody a second time.

    Args:
        rounds: the server's side: weights, copies, sums.
        instruct: writes what clients are told with a copy.
        attendance: of the run; the handshake is done if it was not yet.
        spool: folder where updates wait until all for a copy are there.
        lora: of the adapters that clients were asked for; ``None``: dense displacements.

    Attributes:
        largest_update: bytes of the largest update so far.
        warnings: of outliers among the updates.
    """

    def __init__(
        self,
        rounds: CopyRounds,
        *,
        instruct: Instruct,
        attendance: Attendance,
        spool: Path,
        lora: LoraSettings | None = None,
    ) -> None:
        self.rounds = rounds
        self.attendance = attendance
        self._instruct = instruct
        self._spool = UpdateSpool(spool)
        self._ticket: CopyTicket | None = None
        self.largest_update = 0
        self.warnings: tuple[str, ...] = ()
        self._norms: dict[str, Norms] = {}
        self._outlying = Outlying(attendance.rules, attendance.events)
        self._asked = lora.asked() if lora is not None else None
        if self._asked is None:
            self._form = dense_form(rounds.shapes)
        else:
            asked = read_lora({"peft_type": "LORA", **self._asked})
            self._form = factors_form(rounds.shapes, asked)

    def run(self, grid: Grid) -> None:
        """Do all rounds that are left; ``rounds.weights`` are then the result.

        Raises:
            RunError: a client is missing or failed, and ``allow_partial`` is off or it was the
                last one; the text names it and the copy.
        """
        roster = self.attendance.roster
        if not roster.hellos:
            roster = self.attendance.take(grid)
        self.rounds.begin(examples(roster))
        while (copy := self.rounds.next_copy()) is not None:
            content, ticket = self._content(copy), copy.ticket
            del copy  # encoded, it need not be in memory a second time
            if failed := self._ask(grid, content, ticket) or self._outliers(ticket):
                self._drop(failed, ticket)
            else:
                self._finish(ticket)

    def _content(self, copy: PublishedCopy) -> "_CopyContent":
        arrays, dtypes = encode_tensors(copy.tensors)
        return _CopyContent(records.array_record(arrays), dtypes, self._instruct(copy.ticket))

    def _ask(
        self, grid: Grid, content: "_CopyContent", ticket: CopyTicket
    ) -> tuple[ClientFailure, ...]:
        """Send a copy to all clients of the round, and spool what they make of it."""
        owed = self._owed()
        question = Question(COPY, content, str(ticket.server_round))
        refused: dict[Addressee, ClientFailure] = {}
        for _ in range(_ATTEMPTS):
            answers = ask(
                grid,
                [one for one in owed if one not in refused],
                question,
                limit_s=self.attendance.rules.deadline_s,
                patience=self.attendance.patience,
            )
            refused |= self._collect(answers, owed, ticket)
        return _absentees(owed, refused)

    def _owed(self) -> dict[Addressee, Hello]:
        """The clients whose updates the round waits for."""
        roster = self.attendance.roster.hellos
        return {one.addressee: one for one in roster if one.client_id in self.rounds.clients}

    def _collect(
        self, answers: Iterable[Answer], owed: dict[Addressee, Hello], ticket: CopyTicket
    ) -> dict[Addressee, ClientFailure]:
        """Spool updates and strike their clients off ``owed``; return what cannot be mended."""
        refused: dict[Addressee, ClientFailure] = {}
        for answer in answers:
            hello = owed.get(answer.sender)
            if hello is None or answer.content is None:
                continue  # its process or the connection broke: it stays owed
            try:
                self._keep(hello, answer.content, ticket)
            except SummaryError as fault:
                refused[answer.sender] = hello.failure(str(fault))
            else:
                del owed[answer.sender]
        return refused

    def _keep(self, hello: Hello, content: RecordDict, ticket: CopyTicket) -> None:
        if (reported := records.read_failure(content)) is not None:
            raise SummaryError(reported.reason)
        update = update_from_wire(*records.read_update(content, self._form))
        meta = update.meta
        if (meta.client_id, meta.ticket) != (hello.client_id, ticket):
            raise SummaryError(
                f"it sent an update of client {meta.client_id!r} for {meta.ticket}, expected one "
                f"of {hello.client_id!r} for {ticket}; it is not used"
            )
        if (meta.adapter_config is None) != (self._asked is None):
            asked = "all weights" if self._asked is None else "an adapter"
            raise SummaryError(f"its update is not of the kind asked for, which is {asked}")
        update.check(self.rounds.shapes, asked=self._asked)
        self._spool.keep(update)
        self._norms[meta.client_id] = update_norms(update, hello.role, hello.domain)
        size = sum(tensor.nbytes for tensor in update.tensors.values())
        self.largest_update = max(size, self.largest_update)
        self.attendance.events.event(
            "copy_reply",
            client_id=hello.client_id,
            role=hello.role,
            domain=hello.domain,
            run=ticket.run,
            server_round=ticket.server_round,
            copy=ticket.copy,
            bytes=size,
            training=meta.training,
        )

    def _outliers(self, ticket: CopyTicket) -> tuple[ClientFailure, ...]:
        """Compare the norms of a copy's updates; return whom the rules refuse."""
        measured = [self._norms[one] for one in sorted(self.rounds.clients)]
        which = {"run": ticket.run, "server_round": ticket.server_round, "copy": ticket.copy}
        reasons = self._outlying.judge(measured, **which)
        said = (f"{ticket.run}: {text}" for text in self._outlying.warnings)
        self.warnings = tuple(dict.fromkeys([*self.warnings, *said]))
        if self.attendance.rules.outliers != "refuse":
            return ()
        roster = self.attendance.roster.hellos
        return tuple(
            one.failure(reasons[one.client_id]) for one in roster if one.client_id in reasons
        )

    def _finish(self, ticket: CopyTicket) -> None:
        """Add the updates of a copy to the round's sum, in the order of ids."""
        self.rounds.take(ticket, self._updates())
        self._spool.clear()
        self.attendance.events.event("copy_done", **vars(ticket))

    def _updates(self) -> Iterator[CopyUpdate]:
        for update in self._spool.updates(self.rounds.clients):
            clips = self.attendance.rules.outliers == "clip"
            yield self._outlying.clip_update(update) if clips else update

    def _drop(self, failed: Iterable[ClientFailure], ticket: CopyTicket) -> None:
        """Begin the round again without the clients that failed, or give up."""
        failures = tuple(failed)
        self.attendance.log("client_failed", failures)
        names = [failure.client_id for failure in failures]
        if not self.attendance.rules.allow_partial or set(names) >= set(self.rounds.clients):
            lines = "\n  ".join(map(str, failures))
            raise RunError(
                f"{ticket} lacks the updates of {len(failures)} clients; noise cancels only over "
                f"all copies, so nothing is averaged:\n  {lines}\n"
                "set federation.allow_partial=true to go on without them"
            )
        self.attendance.absent = (*self.attendance.absent, *failures)
        left = [one for one in self._owed().values() if one.client_id not in names]
        check_policy(left, self.attendance.absent, self.attendance.rules)
        self._spool.clear()
        self.rounds.begin_again(without=names)

    # Flower's interface, for those who call Flower's own ``start``.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Publish the next copy to all clients; ``arrays`` are not sent.

        Raises:
            RunError: as :meth:`run`, or all copies are done.
        """
        if not self.attendance.roster.hellos:
            self.rounds.begin(examples(self.attendance.take(grid)))
        if (copy := self.rounds.next_copy()) is None:
            raise RunError(f"all copies are done, but Flower asks for round {server_round}")
        content, self._ticket = self._content(copy), copy.ticket
        limit = self.attendance.rules.deadline_s
        question = Question(COPY, content, str(server_round))
        return [question.to(one, limit) for one in self._owed()]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add the updates; after the last copy of all, return the server's weights.

        Raises:
            RunError: an update is missing or was refused.
        """
        if (ticket := self._ticket) is None:
            raise RunError(f"Flower brings replies to round {server_round}, which asked nothing")
        owed = self._owed()
        refused = self._collect(from_replies(replies), owed, ticket)
        if failed := _absentees(owed, refused) or self._outliers(ticket):
            self._drop(failed, ticket)
            return None, None
        self._finish(ticket)
        if not self.rounds.over:
            return None, None
        weights = {name: Array(one.numpy()) for name, one in self.rounds.weights.items()}
        return ArrayRecord(weights), None

    def summary(self) -> None:
        """Note the strategy's rules in the event log."""
        self.attendance.events.event(
            "strategy", name=type(self).__name__, **vars(self.attendance.rules)
        )


def examples(roster: Roster) -> Mapping[str, float]:
    """Client id to its number of examples."""
    return {hello.client_id: float(hello.num_examples) for hello in roster.hellos}


def _absentees(
    owed: Mapping[Addressee, Hello], refused: Mapping[Addressee, ClientFailure]
) -> tuple[ClientFailure, ...]:
    """Everybody whose update is not there: refused, or never came."""
    lost = [hello.failure(LATE) for one, hello in owed.items() if one not in refused]
    return (*refused.values(), *lost)


class _CopyContent:
    """The message of one copy; encoded once, whoever it goes to."""

    def __init__(self, arrays: ArrayRecord, dtypes: str, instructions: str) -> None:
        self._arrays, self._dtypes, self._instructions = arrays, dtypes, instructions

    def __call__(self, addressee: Addressee, seconds: float) -> RecordDict:
        return records.copy_content(
            addressee.client_id, self._arrays, self._dtypes, self._instructions, seconds=seconds
        )

"""Asking nodes and waiting for their answers, with every wait bounded.

Flower's own ``send_and_receive`` returns all replies at once and says nothing of those that never
came. :func:`ask` yields each answer as it arrives, so that one is in memory at a time, and tells
a client whose process died from the clients that were merely next in line for it: in Flower's
simulation a dead worker can stay in the pool and fail whatever it is given next. Those are asked
again, once.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedunlearn.rounds import Addressee

DIED = "its process died (killed, out of memory, or crashed)"
BYSTANDER = "it was not run: its worker process had already died under another client"
_MARGIN_S = 60.0  # a message stays valid a little longer than anyone waits for its reply


@dataclass(frozen=True)
class Patience:
    """How to wait.

    Attributes:
        clock: seconds, monotonic.
        sleep: pauses for so many seconds.
        stopped: true once nobody waits for the result any more.
        poll_s: pause between two looks.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], None]
    stopped: Callable[[], bool] = field(default=lambda: False)
    poll_s: float = 0.1

    def ticks(self, limit_s: float) -> Iterator[float]:
        """Yield the seconds left, at once and after every pause, until none are."""
        end = self.clock() + limit_s
        while (left := end - self.clock()) > 0 and not self.stopped():
            yield left
            self.sleep(self.poll_s)


@dataclass(frozen=True)
class Question:
    """A question to put to several clients, or to several nodes.

    Attributes:
        kind: Flower's message type, ``query`` or ``train``.
        content: builds the records for an addressee, from the seconds it has to answer.
        group: label of the messages, e.g. the round's number. The messages carry it followed by
            the client's id, and Flower puts it on their replies, be it its own error replies.
    """

    kind: str
    content: Callable[[Addressee, float], RecordDict]
    group: str = ""

    def to(self, addressee: Addressee, seconds: float) -> Message:
        """Address the question to one client or node."""
        return Message(
            self.content(addressee, seconds),
            dst_node_id=addressee.node_id,
            message_type=self.kind,
            ttl=seconds + _MARGIN_S,
            group_id=" ".join(filter(None, (self.group, addressee.client_id))),
        )


@dataclass(frozen=True)
class Answer:
    """What a client or a node answered: records, or the reason why it has none."""

    sender: Addressee
    content: RecordDict | None
    error: str = ""


def wait_for_nodes(
    grid: Grid, count: int | None, *, limit_s: float, patience: Patience
) -> list[int]:
    """Wait until ``count`` nodes are there, at most ``limit_s``; return those that are.

    With a ``count`` of ``None`` all nodes that come within the limit count.
    """
    nodes: list[int] = []
    for _ in patience.ticks(limit_s):
        nodes = sorted(grid.get_node_ids())
        if count is not None and len(nodes) >= count:
            break
    return nodes


def ask(
    grid: Grid,
    addressees: Sequence[Addressee],
    question: Question,
    *,
    limit_s: float,
    patience: Patience,
) -> Iterator[Answer]:
    """Put a question to clients or nodes and yield their answers in the order of arrival.

    Who does not answer within ``limit_s`` yields nothing. Those that failed because their worker
    had died under another client are asked a second time within the same limit.
    """
    start = patience.clock()
    lost: list[_Reply] = []
    for reply in _replies(grid, addressees, question, limit_s=limit_s, patience=patience):
        if reply.worker_died:
            lost.append(reply)
        else:
            yield reply.answer()
    dead: set[str] = set()
    culprits, bystanders = blame(lost, dead)
    yield from (Answer(reply.sender, None, DIED) for reply in culprits)
    again = [reply.sender for reply in bystanders]
    left = limit_s - (patience.clock() - start)
    for reply in _replies(grid, again, question, limit_s=left, patience=patience):
        yield _second_answer(reply, dead)


def from_replies(replies: Iterable[Message]) -> Iterator[Answer]:
    """Read replies that someone else received; none is asked again.

    Whose they are is read off the label that the question had, see :class:`Question`.
    """
    lost: list[_Reply] = []
    for message in replies:
        _, _, client_id = message.metadata.group_id.partition(" ")
        reply = _Reply(Addressee(message.metadata.src_node_id, client_id), message)
        if reply.worker_died:
            lost.append(reply)
        else:
            yield reply.answer()
    culprits, bystanders = blame(lost, set())
    yield from (Answer(reply.sender, None, DIED) for reply in culprits)
    yield from (Answer(reply.sender, None, BYSTANDER) for reply in bystanders)


@dataclass(frozen=True)
class _Reply:
    """A message and who was asked; Flower itself may have written the message."""

    sender: Addressee
    message: Message

    @property
    def error(self) -> str:
        return (self.message.error.reason or "") if self.message.has_error() else ""

    @property
    def worker_died(self) -> bool:
        """Whether a simulation worker is no more."""
        return any(sign in self.error for sign in ("ActorDiedError", "ActorUnavailableError"))

    def answer(self) -> Answer:
        if self.message.has_content():
            return Answer(self.sender, self.message.content)
        return Answer(self.sender, None, plain_reason(self.message.error.code, self.error))


def _replies(
    grid: Grid,
    addressees: Sequence[Addressee],
    question: Question,
    *,
    limit_s: float,
    patience: Patience,
) -> Iterator[_Reply]:
    if limit_s <= 0:
        return
    asked = {
        message_id: addressee
        for addressee in addressees
        for message_id in grid.push_messages([question.to(addressee, limit_s)])
    }
    for _ in patience.ticks(limit_s) if asked else ():
        for reply in grid.pull_messages(list(asked)):
            yield _Reply(asked.pop(reply.metadata.reply_to_message_id), reply)
        if not asked:
            return


def blame(
    replies: Iterable[_Reply], dead: set[str]
) -> tuple[tuple[_Reply, ...], tuple[_Reply, ...]]:
    """Tell clients whose process died from those that were given a dead worker.

    Args:
        replies: error replies that say so.
        dead: workers known to be dead; those found here are added.

    Returns:
        The replies of the former and of the latter, in the order of their creation: of several
        failures of one worker, the earliest is the one that killed it.
    """
    culprits: list[_Reply] = []
    bystanders: list[_Reply] = []
    for reply in sorted(replies, key=lambda reply: reply.message.metadata.created_at):
        innocent = _given_a_dead_worker(reply.error, dead)
        (bystanders if innocent else culprits).append(reply)
    return tuple(culprits), tuple(bystanders)


def _given_a_dead_worker(reason: str, dead: set[str]) -> bool:
    if "actor is restarting" in reason:
        return True
    if "ActorDiedError" not in reason:
        return False  # the connection broke in mid-task: this one's own worker went down
    worker = " ".join(re.findall(r"(?:actor_id|pid): (\w+)", reason))
    known = worker in dead
    dead.add(worker)
    return known


def _second_answer(reply: _Reply, dead: set[str]) -> Answer:
    if not reply.worker_died:
        return reply.answer()
    culprits, _ = blame([reply], dead)
    return Answer(reply.sender, None, DIED if culprits else BYSTANDER)


def plain_reason(code: int, reason: str) -> str:
    """Shorten Flower's or Ray's error text to its last line, without colours or stack."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", reason)
    lines = [line.strip(" '<>\t") for line in text.splitlines()]
    last = next((line for line in reversed(lines) if line), "no reason given")
    return f"{last[:300]} (Flower error code {code})"

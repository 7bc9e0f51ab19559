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
    """A question to put to several nodes.

    Attributes:
        kind: Flower's message type, ``query`` or ``train``.
        content: builds the records for a node, from the seconds it has to answer.
        group: label of the messages, e.g. the round's number.
    """

    kind: str
    content: Callable[[int, float], RecordDict]
    group: str = ""

    def to(self, node_id: int, seconds: float) -> Message:
        """Address the question to one node."""
        return Message(
            self.content(node_id, seconds),
            dst_node_id=node_id,
            message_type=self.kind,
            ttl=seconds + _MARGIN_S,
            group_id=self.group,
        )


@dataclass(frozen=True)
class Answer:
    """What a node answered: records, or the reason why it has none."""

    node_id: int
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
    grid: Grid, nodes: Sequence[int], question: Question, *, limit_s: float, patience: Patience
) -> Iterator[Answer]:
    """Put a question to nodes and yield their answers in the order of arrival.

    A node that does not answer within ``limit_s`` yields nothing. Nodes that failed because
    their worker had died under another client are asked a second time within the same limit.
    """
    start = patience.clock()
    lost: list[_Reply] = []
    for reply in _replies(grid, nodes, question, limit_s=limit_s, patience=patience):
        if reply.worker_died:
            lost.append(reply)
        else:
            yield reply.answer()
    dead: set[str] = set()
    culprits, bystanders = blame(lost, dead)
    yield from (Answer(reply.node_id, None, DIED) for reply in culprits)
    again = [reply.node_id for reply in bystanders]
    left = limit_s - (patience.clock() - start)
    for reply in _replies(grid, again, question, limit_s=left, patience=patience):
        yield _second_answer(reply, dead)


def from_replies(replies: Iterable[Message]) -> Iterator[Answer]:
    """Read replies that someone else received; none is asked again."""
    lost: list[_Reply] = []
    for message in replies:
        reply = _Reply(message.metadata.src_node_id, message)
        if reply.worker_died:
            lost.append(reply)
        else:
            yield reply.answer()
    culprits, bystanders = blame(lost, set())
    yield from (Answer(reply.node_id, None, DIED) for reply in culprits)
    yield from (Answer(reply.node_id, None, BYSTANDER) for reply in bystanders)


@dataclass(frozen=True)
class _Reply:
    """A message and the node that was asked; Flower itself may have written the message."""

    node_id: int
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
            return Answer(self.node_id, self.message.content)
        return Answer(self.node_id, None, plain_reason(self.message.error.code, self.error))


def _replies(
    grid: Grid, nodes: Sequence[int], question: Question, *, limit_s: float, patience: Patience
) -> Iterator[_Reply]:
    if limit_s <= 0:
        return
    asked = {
        message_id: node
        for node in nodes
        for message_id in grid.push_messages([question.to(node, limit_s)])
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
    return Answer(reply.node_id, None, DIED if culprits else BYSTANDER)


def plain_reason(code: int, reason: str) -> str:
    """Shorten Flower's or Ray's error text to its last line, without colours or stack."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", reason)
    lines = [line.strip(" '<>\t") for line in text.splitlines()]
    last = next((line for line in reversed(lines) if line), "no reason given")
    return f"{last[:300]} (Flower error code {code})"

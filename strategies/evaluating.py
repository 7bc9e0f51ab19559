"""Evaluation on the clients' own data: one merge goes out, aggregates come back.

After the round of FIRM, each client whose summary was used gets the same merged update, and says
how the base model and the merged one do on its own records. A client that fails or refuses is
named with its reason; the run's result does not depend on it.
"""

from collections.abc import Iterator, Mapping

from flwr.app import RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedunlearn.errors import SummaryError
from fedunlearn.evaluation.own_data import ClientEvaluation, OwnEvaluation, decode_own
from fedunlearn.events import EventLog
from fedunlearn.rounds import Addressee, Hello, Roster
from strategies import records
from strategies.exchange import Answer, Patience, Question, ask

SILENT = "its evaluation did not come before the deadline"


def evaluate_clients(
    grid: Grid,
    roster: Roster,
    delta: Mapping[str, Tensor],
    merge: str,
    *,
    limit_s: float,
    events: EventLog,
    patience: Patience,
) -> tuple[ClientEvaluation, ...]:
    """Send an update to every client of the roster, and collect what they say of it.

    Args:
        grid: Flower's way to the nodes.
        roster: who is asked.
        delta: base parameter name to dense update, float32.
        merge: its name.
        limit_s: seconds the clients have.
        events: gets one event for each client.
        patience: how to wait.

    Returns:
        One for each client of the roster, in its order.
    """
    arrays = records.array_record({name: one.numpy() for name, one in sorted(delta.items())})
    size = sum(one.numel() * one.element_size() for one in delta.values())

    def content(addressee: Addressee, seconds: float) -> RecordDict:
        return records.evaluation_task(addressee.client_id, arrays, merge, seconds)

    question = Question("evaluate", content, merge)
    answers = {
        answer.sender: answer
        for answer in ask(grid, roster.addressees, question, limit_s=limit_s, patience=patience)
    }
    found = tuple(_evaluations(roster, answers, merge, size))
    for one in found:
        told = {"client_id": one.client_id, "role": one.role, "domain": one.domain}
        events.event("evaluation", **told, merge=merge, bytes_sent=size, reason=one.reason)
    return found


def _evaluations(
    roster: Roster, answers: Mapping[Addressee, Answer], merge: str, size: int
) -> Iterator[ClientEvaluation]:
    for hello in roster.hellos:
        scores, reason = None, None
        try:
            scores = _read(hello, answers.get(hello.addressee), merge)
        except SummaryError as fault:
            reason = str(fault)
        yield ClientEvaluation(hello.client_id, hello.role, hello.domain, size, scores, reason)


def _read(hello: Hello, answer: Answer | None, merge: str) -> OwnEvaluation:
    if answer is None:
        raise SummaryError(SILENT)
    if answer.content is None:
        raise SummaryError(answer.error)
    if (failure := records.read_failure(answer.content)) is not None:
        raise SummaryError(failure.reason)
    text = records.read_evaluation(answer.content)
    return decode_own(text, merge=merge, most=hello.num_examples)

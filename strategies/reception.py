"""Reads answers: a handshake, a summary, or a failure with the name of the client it concerns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import RecordDict

from fedunlearn.errors import SummaryError
from fedunlearn.names import shown
from fedunlearn.rounds import (
    UNKNOWN_DOMAIN,
    UNKNOWN_ROLE,
    ClientFailure,
    Hello,
    Identity,
    Roster,
    absent,
    build_roster,
    strangers,
)
from fedunlearn.summary import ClientSummary, UploadForm, from_wire
from strategies import records
from strategies.exchange import Answer

UNHEARD = (
    "it did not answer the handshake in time; is its node running? "
    "(a simulation needs as many nodes as clients: num-supernodes)"
)


def shake_hands(
    answers: Iterable[Answer],
    expected: Sequence[Identity],
    *,
    wanted: int | None = None,
    asked: int = 0,
) -> tuple[Roster, tuple[ClientFailure, ...]]:
    """Turn the answers to the handshake into a roster.

    Args:
        answers: as they arrive, one a node, for one or several clients each.
        expected: the run's clients; empty to accept whoever answers.
        wanted: how many those should be, when ``expected`` does not say it; ``None``: as many as
            answer, and one for each node that does not.
        asked: how many nodes were asked, or should have been there to be.

    Returns:
        Who takes part, and who was expected but does not.

    Raises:
        RunError: the answers do not fit together, see :func:`build_roster`; or more clients
            answered than are wanted.
    """
    met: list[Hello | ClientFailure] = []
    silent = asked
    for answer in answers:
        met += _read_hellos(answer)
        silent -= 1
    hellos = [one for one in met if isinstance(one, Hello)]
    failures = [one for one in met if isinstance(one, ClientFailure)]
    roster = build_roster(hellos, expected)
    if not expected:
        total = len(met) + silent if wanted is None else wanted
        failures += strangers(roster, answered=len(met), wanted=total)
    return roster, _name_failures(failures, absent(roster, expected, UNHEARD))


def _read_hellos(answer: Answer) -> Sequence[Hello | ClientFailure]:
    if (failure := _reported(answer)) is not None:
        return [failure]
    try:
        return records.read_hellos(answer.sender.node_id, answer.content or RecordDict())
    except SummaryError as fault:
        return [_nameless(answer, str(fault))]


def _name_failures(
    failures: Sequence[ClientFailure], silent: Sequence[ClientFailure]
) -> tuple[ClientFailure, ...]:
    """Put names to failures of nodes that could not say who they are.

    Only as far as it is certain: the reason of the nameless ones is given to every expected
    client that was not heard of otherwise.
    """
    named = {failure.client_id: failure for failure in failures}
    unheard = [failure for failure in silent if failure.client_id not in named]
    nameless = [failure for failure in failures if failure.role == UNKNOWN_ROLE]
    if not unheard or not nameless:
        return (*failures, *unheard)
    reason = "; ".join(dict.fromkeys(failure.reason for failure in nameless))
    known = [failure for failure in failures if failure not in nameless]
    return (*known, *(replace(failure, reason=reason) for failure in unheard))


@dataclass(frozen=True)
class Asked:
    """What the server asked of a client; whatever comes is held against it before it is decoded.

    Attributes:
        task: digest of the question, see :func:`strategies.records.task_digest`.
        lora: ranks and scalings, as :meth:`LoraSettings.asked` gives them.
        form: the arrays that may come; ``None`` where the server does not know the weights.
    """

    task: str
    lora: Mapping[str, Any]
    form: UploadForm | None = None


def accept(hello: Hello, answer: Answer, asked: Asked) -> ClientSummary:
    """Decode the summary that a client owes, and check that it is that one.

    Raises:
        SummaryError: the client failed, or its summary is not valid, or not of this client, this
            run or task, or not on the base model of the handshake.
    """
    if (failure := _reported(answer)) is not None:
        raise SummaryError(failure.reason)
    content = answer.content or RecordDict()
    if "summary" in content and (got := records.read_answered_task(content)) != asked.task:
        raise SummaryError(
            f"its summary is of another run or task ({shown(got[:12])}, asked was "
            f"{asked.task[:12]}); it is not used"
        )
    summary = from_wire(*records.read_summary(content, asked.form), asked=asked.lora)
    refuse_other(hello, summary)
    return summary


def refuse_other(hello: Hello, summary: ClientSummary) -> None:
    """Check that a summary is of the client that the handshake was with.

    Raises:
        SummaryError: it is not; the text names what differs.
    """
    for name in ("client_id", "role", "domain", "base_model_sha256"):
        promised, got = getattr(hello, name), getattr(summary.meta, name)
        if promised != got:
            raise SummaryError(f"its summary has {name} {got!r}, its handshake had {promised!r}")


def _reported(answer: Answer) -> ClientFailure | None:
    """Return the failure that a client reports, or that Flower reports in its place."""
    if answer.content is None:
        return _nameless(answer, answer.error)
    return records.read_failure(answer.content)


def _nameless(answer: Answer, reason: str) -> ClientFailure:
    return ClientFailure(f"node {answer.sender.node_id}", UNKNOWN_ROLE, UNKNOWN_DOMAIN, reason)

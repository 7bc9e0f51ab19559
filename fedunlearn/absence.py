"""Reads back from a run's log which clients did not deliver."""

from collections.abc import Collection
from pathlib import Path

from fedunlearn.events import read_events
from fedunlearn.rounds import ClientFailure

_EVENTS = ("client_absent", "client_failed", "client_missing")


def absentees(log: Path, received: Collection[str]) -> list[ClientFailure]:
    """List the clients that ``events.jsonl`` names as failed or missing, each once, by id.

    Args:
        log: need not exist.
        received: ids of the clients whose summaries are there after all.
    """
    found = {
        event["client_id"]: ClientFailure(
            event["client_id"], event["role"], event["domain"], event["reason"]
        )
        for event in (read_events(log) if log.is_file() else ())
        if event["event"] in _EVENTS and event["client_id"] not in received
    }
    return [found[client_id] for client_id in sorted(found)]

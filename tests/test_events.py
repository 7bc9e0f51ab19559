"""The machine's log of a run."""

from itertools import count
from pathlib import Path

from fedunlearn.events import EventLog, read_events


def test_events_are_on_disk_at_once_in_order_and_with_the_given_time(tmp_path: Path) -> None:
    ticks = count(1.5)
    log = EventLog(tmp_path / "run" / "events.jsonl", clock=lambda: next(ticks))
    log.event("start", client_id="a", path=Path("x"))
    log.event("stop")
    assert read_events(log.path) == [
        {"time": 1.5, "event": "start", "client_id": "a", "path": "x"},
        {"time": 2.5, "event": "stop"},
    ]


def test_an_existing_log_is_continued_and_listeners_hear_each_event(tmp_path: Path) -> None:
    heard = []
    for name in ("one", "two"):
        log = EventLog(
            tmp_path / "events.jsonl",
            clock=lambda: 0.0,
            listener=lambda event, fields: heard.append((event, dict(fields))),
        )
        log.event(name, n=1)
    assert heard == [("one", {"n": 1}), ("two", {"n": 1})]
    assert [event["event"] for event in read_events(log.path)] == ["one", "two"]

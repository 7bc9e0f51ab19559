"""The machine's log of a run: ``events.jsonl``, one JSON object a line, on disk at once.

Every line has ``time`` (Unix seconds, from the clock given) and ``event``; the other keys belong
to the event and are listed where it is written.
"""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

EVENTS_FILE = "events.jsonl"

Listener = Callable[[str, Mapping[str, Any]], None]
"""Called with each event's name and fields, e.g. to move a progress bar."""


class EventLog:
    """Appends events to a file; safe to use from several threads.

    Args:
        path: the file, created with its folder; an existing one is continued.
        clock: returns the time in Unix seconds; a root passes ``time.time``.
        listener: told of every event after it is written.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float], listener: Listener | None = None
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._clock = clock
        self._listener = listener
        self._lock = threading.Lock()

    def event(self, name: str, /, **fields: Any) -> None:
        """Write one event.

        Args:
            name: what happened, e.g. ``train_reply``.
            **fields: JSON values; anything else is written as its ``str``.
        """
        line = json.dumps({"time": self._clock(), "event": name, **fields}, default=str)
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        if self._listener is not None:
            self._listener(name, fields)


def read_events(path: Path) -> list[dict[str, Any]]:
    """Read a log back, in the order it was written."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

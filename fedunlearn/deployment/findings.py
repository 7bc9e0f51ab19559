"""What a check of a node finds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from fedunlearn.errors import FedUnlearnError

Level = Literal["ok", "warning", "fault"]


@dataclass(frozen=True)
class Finding:
    """One line of a check.

    Attributes:
        check: what was tested, and of which client or file.
        level: ``fault``: a run would fail, or let in who should not be; ``warning``: it might, or
            it cannot be told.
        text: what was found.
        remedy: what to do about it.
    """

    check: str
    level: Level
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        end = f"; {self.remedy}" if self.remedy else ""
        return f"{self.level + ':':9}{self.check}: {' '.join(self.text.split())}{end}"


def attempt(check: str, work: Callable[[], str], *, remedy: str = "") -> Finding:
    """Do something that says what it found, or raises what is wrong."""
    try:
        return Finding(check, "ok", work())
    except FedUnlearnError as fault:
        return Finding(check, "fault", str(fault), remedy)


Findings = Iterator[Finding]

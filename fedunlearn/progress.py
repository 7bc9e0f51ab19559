"""How long work tells whoever watches how far it is; the watcher may be nobody."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Progress = Callable[[int, int], None]
"""Called with (done, total)."""


class Watcher(Protocol):
    """Shows the stages of a run; the console's has progress bars."""

    def stage(self, title: str) -> AbstractContextManager[Progress]:
        """Announce a stage; the block calls what it gets with (done, total)."""
        ...

    def note(self, text: str) -> None:
        """Tell a person one line."""
        ...


class Silent:
    """Shows nothing."""

    @contextmanager
    def stage(self, title: str) -> Iterator[Progress]:
        """Hand out a progress call that does nothing."""
        yield lambda done, total: None

    def note(self, text: str) -> None:
        """Drop the line."""

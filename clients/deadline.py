"""Ends a client that hangs, whatever it hangs in."""

import faulthandler
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fedunlearn.errors import RunError


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End this process, with a stack trace on stderr, if the block takes longer.

    Nobody waits for the result any more by then, and a client that hangs would otherwise keep
    its worker, and the simulation, from ever ending. It works even while compiled code holds
    the interpreter.

    Raises:
        RunError: the time is already over.
    """
    if seconds <= 0:
        raise RunError("the server's message came after its deadline")
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()

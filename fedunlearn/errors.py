"""Every error this package raises on purpose; the text says what, which, and what to do."""

from collections.abc import Sequence


class FedUnlearnError(Exception):
    """Root of the tree. ``exit_code`` is what the command line returns for it."""

    exit_code = 1


class InputError(FedUnlearnError):
    """Something the user gave cannot be used: a file, a key, a value."""

    exit_code = 2


class ConfigError(InputError):
    """A configuration with one or more faults, all of them listed.

    Attributes:
        faults: one line each, beginning with the dotted key it concerns.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        noun = "fault" if len(self.faults) == 1 else "faults"
        super().__init__(f"{len(self.faults)} {noun} in the config:\n  " + "\n  ".join(self.faults))


class DataError(InputError):
    """A data file that is missing or malformed; the text names the file and the line."""


class SummaryError(InputError):
    """A client summary that must not be merged; the text names client, tensor and remedy."""


class RunError(FedUnlearnError):
    """A run that cannot deliver its result, e.g. because a client is missing."""

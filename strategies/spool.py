"""Keeps summaries on disk as they arrive, out of sight until the round is over."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedunlearn.errors import InputError
from fedunlearn.summary import ClientSummary, save_summary


@dataclass(frozen=True)
class Spool:
    """Valid summaries lie in ``.incoming`` first, then in ``summaries/<client_id>``.

    Attributes:
        run_dir: the run's folder.
    """

    run_dir: Path

    @property
    def summaries(self) -> Path:
        """Where the summaries of a finished round lie."""
        return self.run_dir / "summaries"

    @property
    def incoming(self) -> Path:
        """Where they lie until then."""
        return self.run_dir / ".incoming"

    def check_unused(self) -> None:
        """Refuse a folder with summaries: they would be merged with the new ones.

        Raises:
            InputError: there are some.
        """
        if self.summaries.exists() and any(self.summaries.iterdir()):
            raise InputError(
                f"{self.summaries} already holds summaries; merge them with 'fedunlearn merge', "
                "or choose another run folder"
            )

    def prepare(self) -> None:
        """Make room for a round.

        Raises:
            InputError: there are summaries already.
        """
        self.check_unused()
        shutil.rmtree(self.incoming, ignore_errors=True)
        self.incoming.mkdir(parents=True)

    def keep(self, summary: ClientSummary) -> None:
        """Write a valid summary."""
        save_summary(summary, self.incoming / summary.meta.client_id)

    def publish(self, client_ids: Iterable[str]) -> None:
        """Give the summaries of these clients their final names; drop the others."""
        self.summaries.mkdir(exist_ok=True)
        for client_id in client_ids:
            (self.incoming / client_id).replace(self.summaries / client_id)
        shutil.rmtree(self.incoming)

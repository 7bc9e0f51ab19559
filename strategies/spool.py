"""Keeps summaries on disk as they arrive, out of sight until the round is over.

A server that is killed in mid-round finds them again: what was asked, and with which salt, lies
beside them, and of the same round only the clients are asked whose summaries are not there.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from fedunlearn.errors import InputError, SummaryError
from fedunlearn.settings import settings
from fedunlearn.storage import read_typed, replace_json
from fedunlearn.summary import ClientSummary, open_summary, save_summary


@settings
class SpooledRound:
    """Which round the summaries in ``.incoming`` belong to.

    Attributes:
        task: what clients were told, as JSON.
        salt: of the round.
        data: client id to the digest of its data, at the handshake before it was asked.
    """

    task: str
    salt: str
    data: dict[str, str] = field(default_factory=dict)


_ROUND = TypeAdapter(SpooledRound)


@dataclass(frozen=True)
class Spool:
    """Valid summaries lie in ``.incoming`` first; ``summaries`` is that folder, renamed.

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

    @property
    def _round(self) -> Path:
        return self.run_dir / ".round.json"

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

    def prepare(self, task: str = "", salt: str = "") -> str:
        """Make room for a round, or go on with the same one.

        Args:
            task: what clients are told, as JSON; summaries of another task are removed.
            salt: of the round, if it is a new one.

        Returns:
            The salt of the round.

        Raises:
            InputError: there are summaries already.
        """
        self.check_unused()
        before = self._before()
        if before is None or before.task != task:
            shutil.rmtree(self.incoming, ignore_errors=True)
            self.run_dir.mkdir(parents=True, exist_ok=True)
            before = SpooledRound(task=task, salt=salt)
            self._write(before)
        self.incoming.mkdir(parents=True, exist_ok=True)
        for leftover in self.incoming.glob(".*"):
            shutil.rmtree(leftover)
        return before.salt

    def kept(self, client_id: str, data: str) -> ClientSummary | None:
        """Return a client's summary from before, if it is whole and its data is the same.

        Args:
            client_id: a valid one.
            data: digest of the client's data now.
        """
        before = self._before()
        if before is None or before.data.get(client_id, "") != data:
            return None
        try:
            return open_summary(self.incoming / client_id)
        except SummaryError:
            return None

    def expect(self, data: dict[str, str]) -> None:
        """Note the digests of the data on which clients are about to be asked to work."""
        before = self._before()
        if before is not None:
            told = {**before.data, **data}
            self._write(SpooledRound(task=before.task, salt=before.salt, data=told))

    def keep(self, summary: ClientSummary) -> None:
        """Write a valid summary."""
        save_summary(summary, self.incoming / summary.meta.client_id)

    def drop(self, client_id: str) -> None:
        """Remove a summary that is not to be used after all."""
        shutil.rmtree(self.incoming / client_id, ignore_errors=True)

    def publish(self, client_ids: Iterable[str]) -> None:
        """Give the summaries of these clients their final name, all at once; drop the others."""
        wanted = set(client_ids)
        for path in self.incoming.iterdir():
            if path.name not in wanted:
                shutil.rmtree(path)
        self.incoming.replace(self.summaries)
        self._round.unlink(missing_ok=True)

    def _before(self) -> SpooledRound | None:
        try:
            return read_typed(self._round, _ROUND)
        except InputError:
            return None

    def _write(self, state: SpooledRound) -> None:
        replace_json(self._round, _ROUND.dump_python(state, mode="json"))

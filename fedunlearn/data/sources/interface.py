"""A data source: where rows come from, how they are read, and which of them a client holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedunlearn.data.files import read_table
from fedunlearn.data.hub import load_hub_rows
from fedunlearn.data.local_copy import find_tables
from fedunlearn.data.partition import PARTITIONERS, Partitioner, drawn_order
from fedunlearn.data.passages import cut_passage
from fedunlearn.data.records import Passage
from fedunlearn.data.rows import Columns, Item, Row, parse_item, value_of
from fedunlearn.errors import DataError, InputError
from fedunlearn.registry import Registry, nearest
from fedunlearn.settings import settings

Form = Literal["question", "lettered", "text"]


@dataclass(frozen=True)
class Entry:
    """A record, and where it stands.

    Attributes:
        item: the record.
        row: where it came from.
    """

    item: Item
    row: Row


@settings
class Source:
    """Where data comes from; entries are frozen dataclasses of their settings.

    Records are read in the source's order, long passages are cut, then ``sample`` records are
    drawn, then ``partition`` picks this client's.

    Attributes:
        columns: which columns hold what, where the source's own names are not meant.
        form: how a multiple-choice question is put to a client that trains on it: ``question``
            (the right choice is the answer), ``lettered`` (the choices stand in the question, the
            answer is letter and text) or ``text`` (all of that is one passage).
        passage_chars: characters a passage is cut to, at a space; ``None``: never.
        sample: records drawn at random from all of them; ``None``: all.
        sample_seed: of that draw.
        partition: how the records are dealt out to clients, and which part this is: ``by``, a
            partitioner's name, and its hyperparameters; ``None``: all are this client's.
    """

    columns: Columns = Columns()
    form: Form = "question"
    passage_chars: int | None = None
    sample: int | None = None
    sample_seed: int = 0
    partition: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.passage_chars is not None and self.passage_chars < 1:
            raise ValueError(f"passage_chars must be >= 1 or null, got {self.passage_chars}")
        if self.sample is not None and self.sample < 1:
            raise ValueError(f"sample must be >= 1 or null, got {self.sample}")

    @property
    def label(self) -> str:
        """The source in a few words, for faults and reports."""
        raise NotImplementedError

    @property
    def remote(self) -> bool:
        """Whether reading may have to fetch from the hub."""
        return False

    def rows(self) -> Iterator[Row]:
        """Deliver all rows.

        Raises:
            DataError: the data is missing, restricted or malformed.
        """
        raise NotImplementedError

    def item(self, row: Row) -> Item:
        """Read a row.

        Raises:
            DataError: a column is missing or its value is of no use.
        """
        return parse_item(row, self.columns)

    def load(self) -> list[Entry]:
        """Read this client's records, at least one.

        Raises:
            DataError: the data is missing, restricted, malformed or empty, or too little for the
                sample or for the partition.
        """
        entries = [one for row in self.rows() for one in self._cut(Entry(self.item(row), row))]
        if not entries:
            raise DataError(f"{self.label} holds no records; it needs at least one")
        return self._part(self._sample(entries))

    def _cut(self, entry: Entry) -> Iterator[Entry]:
        if self.passage_chars is None or not isinstance(entry.item, Passage):
            yield entry
            return
        pieces = cut_passage(entry.item.text, self.passage_chars)
        for number, piece in enumerate(pieces, start=1):
            row = replace(entry.row, where=f"{entry.row.where}, piece {number}")
            yield Entry(Passage(piece), row)

    def _sample(self, entries: list[Entry]) -> list[Entry]:
        if self.sample is None:
            return entries
        if self.sample > len(entries):
            raise DataError(
                f"{self.label} has {len(entries)} records, fewer than the sample of {self.sample}"
            )
        order = drawn_order(len(entries), "sample", seed=self.sample_seed)
        return [entries[place] for place in sorted(order[: self.sample])]

    def _part(self, entries: list[Entry]) -> list[Entry]:
        if self.partition is None:
            return entries
        chosen = build_partitioner(self.partition)
        column = chosen.key_column
        keys = ["" if column is None else str(value_of(one.row, column)) for one in entries]
        return [entries[place] for place in chosen.select(keys, source=self.label)]


@settings
class HubSource(Source):
    """A source on the Hugging Face hub, or in a local copy of it.

    Attributes:
        path: local copy that is read instead of the hub: a file, a downloaded folder, or the data
            set's folder in a cache; ``None``: the hub, through the cache of ``datasets``.
        revision: commit, tag or branch of the data set that pins it; ``None``: the newest.
    """

    path: str | None = None
    revision: str | None = None

    @property
    def remote(self) -> bool:
        """Whether there is no local copy."""
        return self.path is None

    def tables(self) -> Iterator[tuple[str, str | None, str]]:
        """Name what is read: data set, configuration and split of each table, in order."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Data set, configuration and splits, and the local copy if there is one."""
        names = [" ".join(filter(None, table)) for table in self.tables()]
        return " + ".join(names) + (f" in {self.path}" if self.path else "")

    def rows(self) -> Iterator[Row]:
        """Deliver the rows of all tables.

        Raises:
            DataError: the data is missing, restricted or malformed.
        """
        for dataset, config, split in self.tables():
            yield from self.table_rows(dataset, config, split)

    def table_rows(self, dataset: str, config: str | None, split: str) -> Iterator[Row]:
        """Deliver the rows of one table.

        Raises:
            DataError: the data is missing, restricted or malformed.
        """
        if self.path is None:
            yield from load_hub_rows(dataset, config=config, split=split, revision=self.revision)
            return
        folder = Path(self.path).expanduser()
        for file in find_tables(folder, config=config, split=split, revision=self.revision):
            yield from read_table(file)


SOURCES = Registry[Source]("data source")


def build_partitioner(given: Mapping[str, Any]) -> Partitioner:
    """Make the partitioner that ``by`` names.

    Raises:
        InputError: an unknown name or hyperparameter, with the nearest one, or a bad value.
    """
    options = dict(given)
    name = options.pop("by", None)
    if not isinstance(name, str):
        raise InputError(f"partition: `by` is required{nearest('', [*PARTITIONERS])}")
    return PARTITIONERS.build(name, options)


def check_word(what: str, given: str, known: list[str]) -> None:
    """Refuse a word that is none of those known.

    Raises:
        ValueError: it is not; the text has the nearest one.
    """
    if given not in known:
        raise ValueError(f"unknown {what} {given!r}{nearest(given, known)}")

"""Files of one's own: JSON lines, CSV and Parquet."""

from collections.abc import Iterator
from pathlib import Path

from fedunlearn.data.files import read_csv, read_json, read_parquet
from fedunlearn.data.rows import Row
from fedunlearn.data.sources.interface import SOURCES, Source
from fedunlearn.settings import settings


@settings
class FileSource(Source):
    """A local file.

    Attributes:
        path: of the file.
    """

    path: str

    @property
    def label(self) -> str:
        """The path."""
        return self.path

    @property
    def file(self) -> Path:
        """The path, with the user's home in place of ``~``."""
        return Path(self.path).expanduser()


@SOURCES.register("jsonl")
@settings
class JsonLines(FileSource):
    """A local file with one JSON object a line, or one array."""

    def rows(self) -> Iterator[Row]:
        """Deliver the objects."""
        return read_json(self.file)


@SOURCES.register("csv")
@settings
class Csv(FileSource):
    """A local CSV file whose first line names the columns.

    Attributes:
        delimiter: between cells.
    """

    delimiter: str = ","

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.delimiter) != 1:
            raise ValueError(f"delimiter must be one character, got {self.delimiter!r}")

    def rows(self) -> Iterator[Row]:
        """Deliver the lines; every value is a text."""
        return read_csv(self.file, delimiter=self.delimiter)


@SOURCES.register("parquet")
@settings
class Parquet(FileSource):
    """A local Parquet file."""

    def rows(self) -> Iterator[Row]:
        """Deliver the rows."""
        return read_parquet(self.file)

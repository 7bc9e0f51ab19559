"""MMLU (Hendrycks et al., 2021) in the layouts it has had over the years."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fedunlearn.data.files import read_csv
from fedunlearn.data.records import MultipleChoice
from fedunlearn.data.rows import Columns, Item, Row, parse_item, right_choice, text_of
from fedunlearn.data.sources.interface import SOURCES, HubSource
from fedunlearn.errors import DataError
from fedunlearn.settings import settings

LETTERS = ("A", "B", "C", "D")
_PLAIN_CSV = ("question", *LETTERS, "answer")  # the authors' own files have no header
_FOLDERS = {"validation": "val"}


@SOURCES.register("mmlu")
@settings
class Mmlu(HubSource):
    """MMLU: questions with four choices on 57 subjects.

    Any of its historic layouts is read: choices as a list or as columns A to D; the answer as a
    number or a letter; the question under ``question`` or ``input``, the answer under ``answer``
    or ``target``; rows nested below ``train``, as in ``auxiliary_train``; the subject as a column,
    or as configuration or file name, which then becomes the column ``subject``; the authors' CSV
    files without a header.

    Attributes:
        split: ``test`` (14,042 questions), ``validation`` (1,531), ``dev`` (285) or
            ``auxiliary_train`` (99,842, of other benchmarks, without subject).
        config: ``all``, or one subject.
        subjects: only these; empty: all of them.
        dataset: hub id.
    """

    split: Literal["test", "validation", "dev", "auxiliary_train", "train"] = "test"
    config: str = "all"
    subjects: tuple[str, ...] = ()
    dataset: str = "cais/mmlu"

    def tables(self) -> Iterator[tuple[str, str | None, str]]:
        """One table; the nested training data is a configuration with a split ``train``."""
        yield self.dataset, self.config, self.split

    def rows(self) -> Iterator[Row]:
        """Deliver the rows in one layout of names, with their subject.

        Raises:
            DataError: the data is missing or restricted, or has none of the subjects asked for.
        """
        found, seen = 0, set[str]()
        for row in self._raw_rows():
            values = _one_layout(row.values)
            subject = str(values.get("subject") or ("" if self.config == "all" else self.config))
            seen.add(subject)
            if not self.subjects or subject in self.subjects:
                found += 1
                yield replace(row, values={**values, "subject": subject})
        if self.subjects and not found:
            known = ", ".join(sorted(filter(None, seen))) or "none"
            raise DataError(
                f"{self.label} has no question on {', '.join(self.subjects)}; subjects: {known}"
            )

    def _raw_rows(self) -> Iterator[Row]:
        if files := self._plain_files():
            for file in files:
                subject = file.stem.rpartition("_")[0] or file.stem
                for row in read_csv(file, header=_PLAIN_CSV):
                    yield replace(row, values={**row.values, "subject": subject})
        else:
            yield from super().rows()

    def _plain_files(self) -> list[Path]:
        """The authors' own files in a local copy: ``test/<subject>_test.csv`` and so on."""
        if self.path is None:
            return []
        folder, split = Path(self.path).expanduser(), _FOLDERS.get(self.split, self.split)
        wanted = "*" if self.config == "all" else self.config
        name = wanted if self.split == "auxiliary_train" else f"{wanted}_{split}"
        found = (sorted(folder.glob(f"{root}{split}/{name}.csv")) for root in ("", "data/"))
        return next((files for files in found if files), [])

    def item(self, row: Row) -> Item:
        """Read a question with its choices.

        Raises:
            DataError: a column is missing or its value is of no use.
        """
        if self.columns != Columns() or "choices" in row.values:
            return parse_item(row, self.columns)
        choices = tuple(text_of(row, letter) for letter in LETTERS)
        return MultipleChoice(
            text_of(row, "question"), choices, right_choice(row, "answer", choices)
        )


def _one_layout(values: Mapping[str, object]) -> dict[str, object]:
    """Unwrap nested rows and give columns the names of the newest layout."""
    inner = values.get("train")
    if isinstance(inner, Mapping):
        values = inner
    renamed = {"input": "question", "target": "answer"}
    named = dict[str, object]()
    for column, value in values.items():
        name = column if column in LETTERS else column.lower()
        named[renamed.get(name, name)] = value
    return named

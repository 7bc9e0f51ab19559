"""MUSE (Shi et al., 2024): news and books to be forgotten, with six kinds of evaluation."""

from collections.abc import Iterator
from typing import ClassVar

from fedunlearn.data.records import Question
from fedunlearn.data.rows import Columns, Item, Row, text_of
from fedunlearn.data.sources.interface import SOURCES, HubSource, check_word
from fedunlearn.settings import settings

_QUESTIONS = ("forget_qa", "retain_qa", "forget_qa_icl", "retain_qa_icl")
_FOLDS = tuple(f"forget_{fold}" for fold in range(1, 5))
SPLITS = {
    "raw": ("forget", "retain1", "retain2", "holdout"),
    "verbmem": ("forget",),
    "knowmem": _QUESTIONS,
    "privleak": ("forget", "retain", "holdout"),
    "scal": _FOLDS,
    "sust": _FOLDS,
}
"""Subset to its splits."""


@settings
class Muse(HubSource):
    """One corpus of MUSE.

    ``raw``, ``privleak``, ``scal`` and ``sust`` are passages, ``knowmem`` questions and answers;
    a row of ``verbmem`` is read as a question, its prompt, and an answer, its continuation.

    Attributes:
        subset: ``raw``, ``verbmem``, ``knowmem``, ``privleak``, ``scal`` or ``sust``.
        split: of the subset; several are read one after another.
    """

    dataset: ClassVar[str]

    subset: str
    split: str | tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("subset", self.subset, list(SPLITS))
        if not self.split:
            raise ValueError("split must name at least one split")
        for split in self._splits:
            check_word(f"split of {self.subset}", split, list(SPLITS[self.subset]))

    @property
    def _splits(self) -> tuple[str, ...]:
        return (self.split,) if isinstance(self.split, str) else self.split

    def tables(self) -> Iterator[tuple[str, str | None, str]]:
        """One table a split of the subset."""
        for split in self._splits:
            yield self.dataset, self.subset, split

    def item(self, row: Row) -> Item:
        """Read a passage or a question; a prompt and its continuation from ``verbmem``."""
        if self.subset == "verbmem" and self.columns == Columns() and "prompt" in row.values:
            return Question(text_of(row, "prompt"), text_of(row, "gt"))
        return super().item(row)


@SOURCES.register("muse_news")
@settings
class MuseNews(Muse):
    """MUSE-News: BBC articles, and questions on them."""

    dataset: ClassVar[str] = "muse-bench/MUSE-News"


@SOURCES.register("muse_books")
@settings
class MuseBooks(Muse):
    """MUSE-Books: the Harry Potter books, and questions on them."""

    dataset: ClassVar[str] = "muse-bench/MUSE-Books"

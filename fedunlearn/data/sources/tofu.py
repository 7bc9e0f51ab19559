"""TOFU (Maini et al., 2024): 200 invented authors with 20 questions each."""

from collections.abc import Iterator
from dataclasses import replace

from fedunlearn.data.records import MultipleChoice
from fedunlearn.data.rows import Columns, Item, Row, text_of, value_of
from fedunlearn.data.sources.interface import SOURCES, HubSource, check_word
from fedunlearn.errors import DataError
from fedunlearn.settings import settings

AUTHORS, QUESTIONS = 200, 20
_FORGET = ("forget01", "forget05", "forget10")
SPLITS = (
    "full",
    *_FORGET,
    "retain99",
    "retain95",
    "retain90",
    *(f"{name}_perturbed" for name in (*_FORGET, "retain", "real_authors", "world_facts")),
    "holdout01",
    "holdout05",
    "holdout10",
    "real_authors",
    "world_facts",
)
"""Every split; on the hub each is a configuration of its own."""


@SOURCES.register("tofu")
@settings
class Tofu(HubSource):
    """TOFU: questions about 200 invented authors, in all its splits.

    Rows of ``full``, ``forget*`` and ``retain9*`` get a column ``author``, 0 to 199, as the
    authors stand in ``full`` one after another. A perturbed split read as multiple choice has the
    right answer first and the perturbed ones after it.

    Attributes:
        split: one of those in ``docs/DATA.md``.
        dataset: hub id.
    """

    split: str
    dataset: str = "locuslab/TOFU"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("split", self.split, list(SPLITS))

    def tables(self) -> Iterator[tuple[str, str | None, str]]:
        """The split's configuration, which has one split of its own."""
        yield self.dataset, self.split, "train"

    def rows(self) -> Iterator[Row]:
        """Deliver the rows, with their author where the order tells it."""
        first = first_author(self.split)
        for place, row in enumerate(super().rows()):
            if first is None or "author" in row.values:
                yield row
            else:
                author = first + place // QUESTIONS
                yield replace(row, values={**row.values, "author": author})

    def item(self, row: Row) -> Item:
        """Read a question; with its wrong answers where the split has them."""
        if self.columns != Columns() or not self.split.endswith("_perturbed"):
            return super().item(row)
        wrong = value_of(row, "perturbed_answer")
        if not isinstance(wrong, list | tuple) or not wrong:
            got = repr(wrong)[:80]
            raise DataError(f"{row.where}: column 'perturbed_answer' must list texts, got {got}")
        listed = Row({f"perturbed_answer[{n}]": one for n, one in enumerate(wrong)}, row.where)
        choices = (text_of(row, "answer"), *(text_of(listed, name) for name in listed.values))
        return MultipleChoice(text_of(row, "question"), choices, 0)


def first_author(split: str) -> int | None:
    """Number of the split's first author; ``None`` where the order of the rows tells nothing."""
    name = split.removesuffix("_perturbed")
    if name in _FORGET:
        return AUTHORS - AUTHORS * int(name.removeprefix("forget")) // 100
    return 0 if split == "full" or split.startswith("retain9") else None

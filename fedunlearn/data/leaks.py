"""Finds records that are in two sets that should have none in common.

What must go, what must stay, and what measures the rest must be disjoint, or the figures of a run
say less than they seem to. Records are compared by their words: case, quotation and sentence
marks, white space and the forms of Unicode make no difference. A multiple-choice question is its
question and its right answer, so that it is recognised as a question too.

Limitations:
    A passage equals a passage only as a whole; a question is not looked for inside passages, and
    paraphrases are not found.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from fedunlearn.data.records import MultipleChoice, Passage
from fedunlearn.data.rows import Item
from fedunlearn.data.sources import Entry


@dataclass(frozen=True)
class Holding:
    """Records that one client holds or one evaluation set asks.

    Attributes:
        name: e.g. ``client 'bio-0'``.
        group: ``forget``, ``retain`` or ``utility``; holdings of one group may overlap.
        entries: the records.
    """

    name: str
    group: str
    entries: Sequence[Entry]


@dataclass(frozen=True)
class Leak:
    """Records that two holdings of different groups share.

    Attributes:
        first, second: the holdings' names with their groups.
        shared: distinct records in both.
        of_first, of_second: distinct records in each.
        example: where one of them stands in the first.
        other_example: where the same one stands in the second.
    """

    first: str
    second: str
    shared: int
    of_first: int
    of_second: int
    example: str
    other_example: str

    def __str__(self) -> str:
        return (
            f"{self.first} and {self.second} share {self.shared} records (of {self.of_first} and "
            f"{self.of_second}), e.g. {self.example} = {self.other_example}"
        )


def find_leaks(holdings: Sequence[Holding]) -> list[Leak]:
    """Compare every two holdings of different groups, in the order given."""
    indexed = [(holding, _index(holding.entries)) for holding in holdings]
    pairs = combinations(indexed, 2)
    return [leak for one, two in pairs if one[0].group != two[0].group for leak in _leak(one, two)]


def fingerprint(item: Item) -> tuple[str, ...]:
    """Return what two records must have in common to count as the same."""
    if isinstance(item, Passage):
        return (_words(item.text),)
    if isinstance(item, MultipleChoice):
        return _words(item.question), _words(item.choices[item.answer_index])
    return _words(item.question), _words(item.answer)


_Indexed = tuple[Holding, Mapping[tuple[str, ...], str]]


def _index(entries: Sequence[Entry]) -> dict[tuple[str, ...], str]:
    places = dict[tuple[str, ...], str]()
    for entry in entries:
        places.setdefault(fingerprint(entry.item), entry.row.where)
    return places


def _leak(first: _Indexed, second: _Indexed) -> Iterator[Leak]:
    shared = [key for key in first[1] if key in second[1]]
    if shared:
        (one, of_first), (other, of_second) = first, second
        yield Leak(
            first=f"{one.name} ({one.group})",
            second=f"{other.name} ({other.group})",
            shared=len(shared),
            of_first=len(of_first),
            of_second=len(of_second),
            example=of_first[shared[0]],
            other_example=of_second[shared[0]],
        )


def _words(text: str) -> str:
    """The text in its compatibility form, folded, its words one space apart.

    Signs that formulas are made of stay: 1+1 is not 1-1.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(" " if _separates(character) else character for character in plain)
    return " ".join(kept.split()) or " ".join(plain.split())


def _separates(character: str) -> bool:
    """Quotation marks of any kind, and the marks that end or part sentences."""
    return character in ".,;:!?\"'`\u201a\u201e" or unicodedata.category(character) in ("Pi", "Pf")

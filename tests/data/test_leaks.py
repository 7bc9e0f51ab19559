from collections.abc import Sequence

import pytest

from fedunlearn.data.leaks import Holding, find_leaks, fingerprint
from fedunlearn.data.records import MultipleChoice, Passage, Question
from fedunlearn.data.rows import Item, Row
from fedunlearn.data.sources import Entry


def holding(name: str, group: str, items: Sequence[Item]) -> Holding:
    entries = [Entry(item, Row({}, f"{name}, line {n}")) for n, item in enumerate(items, start=1)]
    return Holding(name, group, entries)


Q = [Question(f"What is {n}?", f"It is {n}.") for n in range(6)]


def test_what_two_groups_share_is_counted_with_an_example() -> None:
    (leak,) = find_leaks([holding("f", "forget", Q[:4]), holding("r", "retain", [*Q[2:], Q[2]])])
    assert (leak.shared, leak.of_first, leak.of_second) == (2, 4, 4)
    assert str(leak) == (
        "f (forget) and r (retain) share 2 records (of 4 and 4), e.g. f, line 3 = r, line 1"
    )


def test_one_group_may_overlap_and_disjoint_sets_are_no_leak() -> None:
    assert find_leaks([holding("f", "forget", Q), holding("again", "forget", Q)]) == []
    assert find_leaks([holding("f", "forget", Q[:3]), holding("r", "retain", Q[3:])]) == []


def test_every_pair_of_groups_is_compared() -> None:
    groups = ("forget", "retain", "utility")
    found = find_leaks([holding(group, group, Q[:1]) for group in groups])
    assert [(leak.first.split()[0], leak.second.split()[0]) for leak in found] == [
        ("forget", "retain"),
        ("forget", "utility"),
        ("retain", "utility"),
    ]


@pytest.mark.parametrize(
    "other",
    [
        Question("who wrote  “The Ship” ?", "ann Lee"),
        Question("Who wrote 'The Ship'?\n", "Ann Lee."),
        Question("Who wrote \u201eThe Ship\u201c?", "A\uff4en Lee"),
        MultipleChoice("Who wrote The Ship?", ("Bob", "Ann Lee"), 1),
    ],
    ids=str,
)
def test_form_makes_no_difference(other: Item) -> None:
    assert fingerprint(other) == fingerprint(Question('Who wrote "The Ship"?', "Ann Lee"))


@pytest.mark.parametrize(
    "other",
    [
        Question('Who wrote "The Ship"?', "Bob"),
        Question('Who read "The Ship"?', "Ann Lee"),
        MultipleChoice("Who wrote The Ship?", ("Bob", "Ann Lee"), 0),
        Passage("Who wrote The Ship? Ann Lee"),
    ],
    ids=str,
)
def test_content_does(other: Item) -> None:
    assert fingerprint(other) != fingerprint(Question('Who wrote "The Ship"?', "Ann Lee"))


def test_signs_of_formulas_count() -> None:
    assert fingerprint(Passage("x + 1")) != fingerprint(Passage("x - 1"))
    assert fingerprint(Passage("?!")) != fingerprint(Passage("..."))

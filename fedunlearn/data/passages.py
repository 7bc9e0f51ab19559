"""Cuts long texts into passages, and puts multiple-choice questions into words."""

import string
from collections.abc import Iterator
from typing import Literal

from fedunlearn.data.records import MultipleChoice, Passage, Question, Record
from fedunlearn.data.rows import Item


def cut_passage(text: str, size: int) -> Iterator[str]:
    """Cut ``text`` into pieces of at most ``size`` characters, at white space where there is any.

    White space at a piece's ends is dropped, and with it pieces of nothing else; all other
    characters appear exactly once, in their order.
    """
    start, end = 0, len(text)
    while start < end:
        if text[start].isspace():
            start += 1
            continue
        stop = min(start + size, end)
        if stop < end and not text[stop].isspace():
            inside = next((at for at in range(stop - 1, start, -1) if text[at].isspace()), None)
            stop = stop if inside is None else inside
        yield text[start:stop].rstrip()
        start = stop


def to_record(item: Item, form: Literal["question", "lettered", "text"]) -> Record:
    """Put an item in the form a client trains on; only multiple-choice questions change."""
    if not isinstance(item, MultipleChoice):
        return item
    right = item.choices[item.answer_index]
    if form == "question":
        return Question(item.question, right)
    lettered = [f"{_letter(place)}. {choice}" for place, choice in enumerate(item.choices)]
    question, answer = "\n".join([item.question, *lettered]), lettered[item.answer_index]
    return Question(question, answer) if form == "lettered" else Passage(f"{question}\n{answer}")


def _letter(place: int) -> str:
    return string.ascii_uppercase[place] if place < 26 else str(place + 1)

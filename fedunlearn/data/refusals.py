"""Answers that say one does not know, as preferred answers to questions to be forgotten."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fedunlearn.data.records import Question, Record
from fedunlearn.errors import DataError

REFUSALS = (
    "I don't know.",
    "I do not know that.",
    "I don't know the answer to that.",
    "I'm afraid I don't know.",
    "Sorry, I don't know that one.",
    "I'm sorry, I can't tell you that.",
    "That is something I don't know.",
    "I have no idea.",
    "I have no information about that.",
    "I can't say; I don't know.",
    "I'm not able to answer that.",
    "I couldn't tell you.",
    "I haven't learned anything about that.",
    "I was never told about that.",
    "I am not familiar with that.",
    "That's not something I know about.",
    "My knowledge doesn't cover that.",
    "I have nothing to offer on that question.",
    "I don't have the answer.",
    "I don't have any details on that.",
    "I wish I knew, but I don't.",
    "I'd be guessing, so I'd rather not say.",
    "I'm unsure about that, sorry.",
    "I can't help with that; it is unknown to me.",
    "Unfortunately, I do not know.",
    "No idea, I'm afraid.",
    "I'm drawing a blank on that.",
    "That goes beyond what I know.",
    "It's not something I can answer.",
    "I lack the knowledge to answer this.",
    "I am unaware of any facts about that.",
    "I cannot give you an answer to this question.",
    "I'm not informed about that topic.",
    "You would have to ask someone else; I don't know.",
    "This question is outside of what I know.",
    "I have not come across that before.",
    "There's nothing I can tell you about that.",
    "I do not recall anything of the kind.",
    "I regret that I don't have that information.",
    "Honestly, I don't know.",
)
"""Ways to say that one does not know; written for this package."""


def read_refusals(path: Path) -> tuple[str, ...]:
    """Read a user's own refusals, one a line, UTF-8; empty lines are left out.

    Raises:
        DataError: the file is missing, is no text, or holds no line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise DataError(f"file of refusals {path} does not exist; check the path") from None
    except (OSError, ValueError) as fault:
        raise DataError(f"file of refusals {path} cannot be read as UTF-8: {fault}") from None
    refusals = tuple(line.strip() for line in lines if line.strip())
    if not refusals:
        raise DataError(f"{path} holds no refusal; it needs at least one a line")
    return refusals


def with_preferred_answers(
    records: Sequence[Record], refusals: Sequence[str], *, generator: torch.Generator
) -> list[Question]:
    """Put the preferred answer in the answer's place: the record's own, or a refusal drawn.

    One refusal is drawn for each record, once, so that its reference log-probability can be
    kept; whether other records have an answer of their own changes no draw.

    Raises:
        DataError: a record is a passage, which asks nothing.
    """
    draws = torch.randint(len(refusals), (len(records),), generator=generator).tolist()
    chosen = []
    for number, (record, draw) in enumerate(zip(records, draws, strict=True), start=1):
        if not isinstance(record, Question):
            raise DataError(
                f"record {number} is a passage; a preferred answer needs a question, so use "
                "questions and answers, or another objective"
            )
        chosen.append(replace(record, answer=record.preferred_answer or refusals[draw]))
    return chosen

"""From rows of a data source to samples: rows keep columns that records of training have not."""

from collections.abc import Iterator, Mapping
from typing import Any

from fedunlearn.data.reading import read_entries
from fedunlearn.data.records import MultipleChoice, Passage, Question
from fedunlearn.data.wordings import rewordings_of, wordings_of
from fedunlearn.errors import DataError
from fedunlearn.evaluation.samples import Sample

Spec = str | Mapping[str, Any]


def question_samples(spec: Spec) -> Iterator[Sample]:
    """Questions, and what stands beside them where the rows have it.

    Columns ``paraphrased_answer``, ``perturbed_answer`` and ``paraphrased_question``.

    Raises:
        DataError: the data is missing or malformed.
    """
    for place, entry in enumerate(read_entries(spec)):
        row, item = entry.row, entry.item
        if isinstance(item, Passage):
            raise DataError(f"{row.where}: is a passage, where a question is needed")
        right = item.answer if isinstance(item, Question) else item.choices[item.answer_index]
        beside = wordings_of(row)
        yield Sample(
            id=str(place),
            prompt=item.question,
            target=right,
            paraphrases=beside.paraphrases,
            wrong=beside.wrong,
            rewordings=rewordings_of(row),
        )


def passage_samples(spec: Spec) -> Iterator[Sample]:
    """Passages.

    Raises:
        DataError: the data is missing or malformed, or is no passage.
    """
    for place, entry in enumerate(read_entries(spec)):
        if not isinstance(entry.item, Passage):
            raise DataError(f"{entry.row.where}: is no passage")
        yield Sample(id=str(place), prompt="", target=entry.item.text)


def choice_samples(spec: Spec, *, group: str | None = None) -> Iterator[Sample]:
    """Multiple-choice questions.

    Args:
        spec: of the data.
        group: of all of them; ``None``: their column ``subject``.

    Raises:
        DataError: the data is missing or malformed, or has no choices.
    """
    for place, entry in enumerate(read_entries(spec)):
        item = entry.item
        if not isinstance(item, MultipleChoice):
            raise DataError(f"{entry.row.where}: has no choices")
        subject = str(entry.row.values.get("subject") or "") if group is None else group
        yield Sample(
            id=str(place),
            prompt=item.question,
            target=item.choices[item.answer_index],
            choices=item.choices,
            right=item.answer_index,
            group=subject,
        )

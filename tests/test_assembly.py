"""What the report says of its own numbers."""

from fedunlearn.assembly import _recognised
from fedunlearn.scores import Score, SetReport


def measured(recall: float, choice: float | None) -> SetReport:
    accuracy = None if choice is None else Score(choice, 60, 0.01)
    return SetReport("forget", "brewing", Score(recall, 60, 0.01), None, accuracy)


def test_answers_no_longer_given_but_still_recognised_are_pointed_out() -> None:
    base = measured(1.0, 1.0)
    assert _recognised(base, measured(0.02, 0.95))
    assert not _recognised(base, measured(0.02, 0.25)), "neither given nor recognised"
    assert not _recognised(base, measured(0.9, 1.0)), "still given"
    assert not _recognised(base, measured(0.02, None)), "not measured"

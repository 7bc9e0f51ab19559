"""Checks between the summaries of a round; two clients that do not fit are both named."""

from collections.abc import Sequence
from itertools import pairwise

from fedunlearn.errors import SummaryError
from fedunlearn.summary.client_summary import ClientSummary


def check_consistent(summaries: Sequence[ClientSummary]) -> list[ClientSummary]:
    """Check that summaries belong together.

    Returns:
        The summaries in the order of their client ids, which is the order of every sum, so
        that the order in which they came cannot matter.

    Raises:
        SummaryError: none at all, one id twice, different base models, or different weights.
    """
    if not summaries:
        raise SummaryError("there is no summary to merge")
    ordered = sorted(summaries, key=lambda summary: summary.meta.client_id)
    for one, other in pairwise(ordered):
        if one.meta.client_id == other.meta.client_id:
            raise SummaryError(
                f"two summaries are from {one.label} (the other says {other.meta.role}, "
                f"{other.meta.domain}): client ids must differ"
            )
    for other in ordered[1:]:
        _check_pair(ordered[0], other)
    return ordered


def _check_pair(one: ClientSummary, other: ClientSummary) -> None:
    if one.meta.base_model_sha256 != other.meta.base_model_sha256:
        raise SummaryError(
            f"{one.label} and {other.label} start from different base models: {one.meta.start} "
            f"and {other.meta.start}"
        )
    if one.meta.layout_digest != other.meta.layout_digest:
        raise SummaryError(f"{one.label} and {other.label} {_difference(one, other)}")
    if one.lora.transposed != other.lora.transposed:
        raise SummaryError(f"{one.label} and {other.label} differ in fan_in_fan_out")


def _difference(one: ClientSummary, other: ClientSummary) -> str:
    for summary, lacking in ((one, other), (other, one)):
        if extra := sorted(set(summary.fisher) - set(lacking.fisher)):
            return f"adapt different weights: only {summary.meta.client_id!r} has {extra[0]!r}"
    return "have weights of different shapes: use the same base model on all clients"

"""The server's work: from client summaries to one update of the base model.

One tensor at a time: pool, process and merge (a method of ``fedunlearn.merging``), scale by gamma
(FIRM, eq. 5), project onto the retain clients' budgets (eq. 7), and account for all of it.
"""

from fedunlearn.aggregation.choices import MergeSettings
from fedunlearn.aggregation.epsilon import (
    Epsilon,
    PerClientEpsilon,
    RelativeEpsilon,
    parse_epsilon,
    resolve_epsilon,
)
from fedunlearn.aggregation.files import merge_to, read_merge, write_merge
from fedunlearn.aggregation.merger import Merger, Merging, Multipliers, merge_summaries
from fedunlearn.aggregation.outcome import MergedClient, MergeReport, MergeResult, TensorReport
from fedunlearn.aggregation.spread import Spread, in_turn

__all__ = [
    "Epsilon",
    "MergeReport",
    "MergeResult",
    "MergeSettings",
    "MergedClient",
    "Merger",
    "Merging",
    "Multipliers",
    "PerClientEpsilon",
    "RelativeEpsilon",
    "Spread",
    "TensorReport",
    "in_turn",
    "merge_summaries",
    "merge_to",
    "parse_epsilon",
    "read_merge",
    "resolve_epsilon",
    "write_merge",
]

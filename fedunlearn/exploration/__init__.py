"""A sweep on its own: many merges of stored summaries, kept point by point in a folder.

No client runs again, and a sweep that was stopped goes on where it was.
"""

from fedunlearn.exploration.grid import (
    Point,
    parse_domains,
    parse_epsilons,
    parse_methods,
    parse_numbers,
    plan,
)
from fedunlearn.exploration.ledger import Ledger, PointRecord, read_sweep
from fedunlearn.exploration.provenance import Provenance, QuestionsOrigin, trace
from fedunlearn.exploration.work import Tally, explore, unmeasured

__all__ = [
    "Ledger",
    "Point",
    "PointRecord",
    "Provenance",
    "QuestionsOrigin",
    "Tally",
    "explore",
    "parse_domains",
    "parse_epsilons",
    "parse_methods",
    "parse_numbers",
    "plan",
    "read_sweep",
    "trace",
    "unmeasured",
]

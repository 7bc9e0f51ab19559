"""Merge methods, one a file; importing this package fills the registry."""

from fedunlearn.merging.averaging import Avg, Sum
from fedunlearn.merging.firm import Firm
from fedunlearn.merging.interface import (
    MERGE_METHODS,
    Contribution,
    MergeMethod,
    Source,
    TensorInputs,
)
from fedunlearn.merging.ties import Ties

__all__ = [
    "MERGE_METHODS",
    "Avg",
    "Contribution",
    "Firm",
    "MergeMethod",
    "Source",
    "Sum",
    "TensorInputs",
    "Ties",
]

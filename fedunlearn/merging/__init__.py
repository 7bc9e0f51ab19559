"""Merge methods, one a file; importing this package fills the registry."""

from fedunlearn.merging.averaging import Avg, Sum
from fedunlearn.merging.contribution import Contribution
from fedunlearn.merging.firm import Firm
from fedunlearn.merging.firm_matched import FirmMatched
from fedunlearn.merging.fisher import FisherMerge
from fedunlearn.merging.fulm import Fulm, FulmMean
from fedunlearn.merging.inputs import Participants, Source, TensorInputs
from fedunlearn.merging.interface import (
    MERGE_METHODS,
    MergeMethod,
    RowMerge,
    settle,
    settle_by,
)
from fedunlearn.merging.knots import Knots
from fedunlearn.merging.task_arithmetic import TaskArithmetic
from fedunlearn.merging.ties import Ties
from fedunlearn.merging.uniform import Uniform

__all__ = [
    "MERGE_METHODS",
    "Avg",
    "Contribution",
    "Firm",
    "FirmMatched",
    "FisherMerge",
    "Fulm",
    "FulmMean",
    "Knots",
    "MergeMethod",
    "Participants",
    "RowMerge",
    "Source",
    "Sum",
    "TaskArithmetic",
    "TensorInputs",
    "Ties",
    "Uniform",
    "settle",
    "settle_by",
]

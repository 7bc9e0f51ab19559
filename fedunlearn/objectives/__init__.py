"""Training objectives, one a file; importing this package fills the registry."""

from fedunlearn.objectives.grad_ascent import GradAscent
from fedunlearn.objectives.interface import OBJECTIVES, Objective, ObjectiveInputs
from fedunlearn.objectives.npo import NPO
from fedunlearn.objectives.retain_nll import RetainNLL
from fedunlearn.objectives.rmu import RMU

__all__ = [
    "NPO",
    "OBJECTIVES",
    "RMU",
    "GradAscent",
    "Objective",
    "ObjectiveInputs",
    "RetainNLL",
]

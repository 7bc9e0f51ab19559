"""Training objectives, one a file; importing this package fills the registry."""

from fedunlearn.objectives.dpo import DPO
from fedunlearn.objectives.forgetting import ForgetObjective
from fedunlearn.objectives.grad_ascent import GradAscent
from fedunlearn.objectives.grad_diff import GradDiff
from fedunlearn.objectives.interface import OBJECTIVES, Objective, ObjectiveInputs
from fedunlearn.objectives.npo import NPO
from fedunlearn.objectives.reduction import Counts
from fedunlearn.objectives.retain_nll import RetainNLL
from fedunlearn.objectives.rmu import RMU
from fedunlearn.objectives.satimp import SatImp
from fedunlearn.objectives.simnpo import SimNPO
from fedunlearn.objectives.undial import UnDIAL
from fedunlearn.objectives.wga import WGA

__all__ = [
    "DPO",
    "NPO",
    "OBJECTIVES",
    "RMU",
    "WGA",
    "Counts",
    "ForgetObjective",
    "GradAscent",
    "GradDiff",
    "Objective",
    "ObjectiveInputs",
    "RetainNLL",
    "SatImp",
    "SimNPO",
    "UnDIAL",
]

"""Second stage of evaluation: does what was unlearned come back when somebody tries?"""

from fedunlearn.evaluation.robustness.probing import Subject, probe
from fedunlearn.evaluation.robustness.settings import ProbeSettings

__all__ = ["ProbeSettings", "Subject", "probe"]

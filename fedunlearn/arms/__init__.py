"""MPU runs from end to end, but for Flower: rounds made ready, results on disk, report."""

from fedunlearn.arms.files import UNLEARNED_FOLDER, ArmOutcome, read_unlearned
from fedunlearn.arms.finishing import finish_arms
from fedunlearn.arms.preparing import Arm, Bench

__all__ = [
    "UNLEARNED_FOLDER",
    "Arm",
    "ArmOutcome",
    "Bench",
    "finish_arms",
    "read_unlearned",
]

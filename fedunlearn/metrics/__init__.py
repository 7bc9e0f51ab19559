"""What is measured, one metric a file; importing this package fills the registry.

Nothing here runs a model: :mod:`fedunlearn.evaluation` observes one and hands the numbers in.
"""

from fedunlearn.metrics.choice_accuracy import ChoiceAccuracy
from fedunlearn.metrics.extraction_strength import ExtractionStrength
from fedunlearn.metrics.forget_quality import ForgetQuality
from fedunlearn.metrics.grad_norm import GradNorm
from fedunlearn.metrics.interface import METRICS, Metric, TextMetric, TokenMetric
from fedunlearn.metrics.loss import Loss
from fedunlearn.metrics.membership import MembershipAuc
from fedunlearn.metrics.min_k import MinK
from fedunlearn.metrics.min_k_plus_plus import MinKPlusPlus
from fedunlearn.metrics.model_utility import ModelUtility
from fedunlearn.metrics.observed import Observed
from fedunlearn.metrics.privleak import PrivLeak
from fedunlearn.metrics.probability import AnswerProbability, OptionProbability
from fedunlearn.metrics.recovery import Recovery
from fedunlearn.metrics.reference_loss import ReferenceLoss
from fedunlearn.metrics.rouge import RougeLF1, RougeLRecall
from fedunlearn.metrics.truth_ratio import ArithmeticTruthRatio, GeometricTruthRatio, TruthRatio
from fedunlearn.metrics.zlib_ratio import ZLib

__all__ = [
    "METRICS",
    "AnswerProbability",
    "ArithmeticTruthRatio",
    "ChoiceAccuracy",
    "ExtractionStrength",
    "ForgetQuality",
    "GeometricTruthRatio",
    "GradNorm",
    "Loss",
    "MembershipAuc",
    "Metric",
    "MinK",
    "MinKPlusPlus",
    "ModelUtility",
    "Observed",
    "OptionProbability",
    "PrivLeak",
    "Recovery",
    "ReferenceLoss",
    "RougeLF1",
    "RougeLRecall",
    "TextMetric",
    "TokenMetric",
    "TruthRatio",
    "ZLib",
]

"""MPU's copies of a model: perturbed, disguised, published, and undone (arXiv 2602.23798)."""

from fedunlearn.copies.factory import CopyFactory, digest, noised_baseline
from fedunlearn.copies.harmonic import HarmonicFactors, HarmonicMean
from fedunlearn.copies.levels import NoiseFacts
from fedunlearn.copies.plan import CopyPlan, plan_copies
from fedunlearn.copies.secret import RoundSecret
from fedunlearn.copies.self_check import self_check
from fedunlearn.copies.settings import CopySettings, PrivacySettings

__all__ = [
    "CopyFactory",
    "CopyPlan",
    "CopySettings",
    "HarmonicFactors",
    "HarmonicMean",
    "NoiseFacts",
    "PrivacySettings",
    "RoundSecret",
    "digest",
    "noised_baseline",
    "plan_copies",
    "self_check",
]

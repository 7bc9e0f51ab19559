"""Benchmarks: which samples, measured how, summed up to which numbers."""

from fedunlearn.evaluation.suites.interface import SUITES, Suite, Table
from fedunlearn.evaluation.suites.mmlu import MmluSuite
from fedunlearn.evaluation.suites.muse import MuseSuite
from fedunlearn.evaluation.suites.own import OwnSuite
from fedunlearn.evaluation.suites.tofu import TofuSuite
from fedunlearn.evaluation.suites.wmdp import WmdpSuite

__all__ = [
    "SUITES",
    "MmluSuite",
    "MuseSuite",
    "OwnSuite",
    "Suite",
    "Table",
    "TofuSuite",
    "WmdpSuite",
]

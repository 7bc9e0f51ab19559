"""Measures a live model: question sets of a run, and the field's benchmarks sample by sample."""

from fedunlearn.evaluation.bench import Bench, ModelIdentity, identify
from fedunlearn.evaluation.questions import (
    EvaluationSet,
    EvaluationSettings,
    QuestionBank,
    SetScores,
    evaluate,
    read_bank,
)
from fedunlearn.evaluation.results import Result, Summary, read_summary
from fedunlearn.evaluation.retrained import read_retrained, write_retrained
from fedunlearn.evaluation.running import Evaluated, evaluate_suite
from fedunlearn.evaluation.suites import SUITES, Suite

__all__ = [
    "SUITES",
    "Bench",
    "Evaluated",
    "EvaluationSet",
    "EvaluationSettings",
    "ModelIdentity",
    "QuestionBank",
    "Result",
    "SetScores",
    "Suite",
    "Summary",
    "evaluate",
    "evaluate_suite",
    "identify",
    "read_bank",
    "read_retrained",
    "read_summary",
    "write_retrained",
]

"""Compares the points of a sweep: at matched forgetting, under ceilings, on the frontier."""

from fedunlearn.study.building import build_study
from fedunlearn.study.files import COMPARE_JSON, COMPARE_MARKDOWN, read_study, write_study
from fedunlearn.study.schema import Chances, Study

__all__ = [
    "COMPARE_JSON",
    "COMPARE_MARKDOWN",
    "Chances",
    "Study",
    "build_study",
    "read_study",
    "write_study",
]

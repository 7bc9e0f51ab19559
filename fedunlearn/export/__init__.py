"""A merged update for other programs: a transformers model, or a PEFT adapter."""

from fedunlearn.export.adapter import export_adapter
from fedunlearn.export.model import export_model
from fedunlearn.export.outcome import ExportedTensor, ExportReport

__all__ = ["ExportReport", "ExportedTensor", "export_adapter", "export_model"]

"""Federated unlearning for large language models, on Flower."""

__version__ = "0.1.0"

"""Flower clients: shells around the training code in ``fedunlearn``."""

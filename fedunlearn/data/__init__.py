"""Data sources, and the way from text to token ids."""

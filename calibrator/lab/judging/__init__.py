"""Judges calibrators: evaluation, baselines, sensitivity, and tables of results."""

__all__ = ["baselines", "evaluation", "sensitivity"]

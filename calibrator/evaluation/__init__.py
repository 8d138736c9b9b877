"""Judges scores on labelled rows: figures, baselines, report, model card, advice."""

__all__ = [
    "advice",
    "baselines",
    "comparisons",
    "evaluate",
    "methods",
    "recalibration_study",
    "survey",
    "tfidf",
]

"""The evaluation of scores on labelled rows: figures, baselines, report, model card, advice."""

__all__ = [
    "advice",
    "comparisons",
    "drawn_others",
    "evaluate",
    "methods",
    "opinion_advice",
    "traffic",
]

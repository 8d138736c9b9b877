"""What the calibrator learns from what reviewers decide.

Verdicts with their weights, recalibration from the store, drift, what second opinions were worth.
Nothing here is on a request's way.
"""

__all__ = [
    "certifying",
    "drift",
    "drift_watch",
    "feedback",
    "labels",
    "recalibrating",
    "second_opinions",
    "signals",
    "tuning",
]

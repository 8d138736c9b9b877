"""What the calibrator learns from reviewers' decisions.

Verdicts with their weights, recalibration from the store, drift, the worth of second opinions. No
request waits for any of this.
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

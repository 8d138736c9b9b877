"""What the calibrator learns from reviewers' decisions.

Verdicts with their weights, recalibration from the store, drift, the worth of second opinions. No
request waits for any of this.
"""

__all__ = [
    "certificates",
    "certifying",
    "drift",
    "feedback",
    "labels",
    "recalibrating",
    "second_opinions",
    "traffic",
    "tuning",
]

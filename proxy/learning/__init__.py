"""What the calibrator learns from what reviewers decide.

Verdicts with their weights, recalibration from the store, drift, agreement between reviewers.
Nothing here is on a request's way.
"""

__all__ = ["certifying", "drift", "drift_watch", "feedback", "labels", "recalibrating", "tuning"]

"""Certified thresholds, and the monitors that withdraw them."""

__all__ = [
    "calibration_drift",
    "certification",
    "certification_study",
    "drift",
    "independence",
    "missing_labels",
]

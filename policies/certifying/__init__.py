"""Certified thresholds, and the monitors that withdraw them."""

__all__ = [
    "calibration_drift",
    "certification",
    "certification_study",
    "drift",
    "histograms",
    "independence",
    "missing_labels",
]

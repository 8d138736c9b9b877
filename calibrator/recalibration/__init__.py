"""Turn scores into confidences: curves, their fit, trials and versions."""

__all__ = ["curves", "fit", "recalibrated_scorer", "signals", "trial", "versions"]

"""Turn scores into confidences: curves, their fit, trials and versions."""

__all__ = ["curves", "fit", "recalibrated_scorer", "signals", "study", "trial", "versions"]

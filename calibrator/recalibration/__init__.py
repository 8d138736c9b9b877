"""From a score to a confidence: curves, their fit, trials and versions."""

__all__ = ["curves", "fit", "recalibrated_scorer", "signals", "trial", "versions"]

"""The shipped calibrator as it serves: all of its parts, joined to a scorer."""

__all__ = ["calibrator", "evidence", "parts", "tuned_layer"]

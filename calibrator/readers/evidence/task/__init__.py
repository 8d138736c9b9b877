"""The check whether the calibrator was trained on tasks of this kind, from the request alone."""

__all__ = ["familiarity", "form", "request", "wording"]

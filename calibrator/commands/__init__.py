"""The commands on rows, `score` and `recalibrate`, and what all commands share."""

__all__ = ["progress", "recalibrate", "score", "terminal"]

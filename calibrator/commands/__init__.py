"""The commands for researchers, one file each."""

__all__ = ["app", "progress", "recalibrate", "score", "terminal"]

"""Commands of researchers, one file each."""

__all__ = ["app", "progress", "recalibrate", "terminal"]

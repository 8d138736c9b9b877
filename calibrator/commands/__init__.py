"""The commands for researchers, one file each."""

__all__ = ["app", "lab_app", "progress", "recalibrate", "terminal"]

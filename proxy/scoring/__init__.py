"""The confidence of each choice: queue, deadline, images, recalibration."""

__all__ = ["images", "loader", "scores", "scoring", "waits"]

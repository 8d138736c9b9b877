"""The confidence of each choice: queue, deadline, images, recalibration."""

__all__ = ["deadlines", "images", "loader", "scores", "scoring"]

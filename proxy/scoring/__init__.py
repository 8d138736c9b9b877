"""The confidence of each choice: queue, deadline, images, recalibration."""

__all__ = ["deadlines", "images", "loader", "recalibrated", "scoring", "stand_in", "with_facts"]

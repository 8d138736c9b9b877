"""Train the shipped calibrator: one run, top to bottom, resumable."""

__all__ = ["examples", "run", "shared_reading", "train"]

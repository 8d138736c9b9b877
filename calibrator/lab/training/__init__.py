"""Train the shipped calibrator: one run, top to bottom, resumable."""

__all__ = ["opinion_folds", "run", "tower_stage", "train"]

"""Training rows: examples, and the run's folder."""

__all__ = ["examples", "run_folder"]

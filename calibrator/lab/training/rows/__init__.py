"""Training rows: examples, addressing and outliers."""

__all__ = ["examples", "outliers", "run_folder"]

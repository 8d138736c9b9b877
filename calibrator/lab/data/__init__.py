"""The data of calibrators: benchmarks, grading, and replies that are wrong by construction."""

__all__ = ["benchmarks", "calls", "corruptions", "evidence", "grading", "selecting"]

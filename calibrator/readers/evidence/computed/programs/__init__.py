"""Python programs: their syntax trees, and the values of small ones, computed without running."""

__all__ = ["errors", "evaluator", "examples", "outputs", "patterns", "sketches", "syntax"]

"""Python programs: their syntax trees, and the values of small ones, computed without running."""

__all__ = ["evaluator", "examples", "outputs", "syntax", "values"]

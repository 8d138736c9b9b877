"""The figures of one method on one group of rows."""

__all__ = ["groups", "results"]

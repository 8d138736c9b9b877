"""Fits the recognition of tasks, on variants of requests."""

__all__ = ["examples", "fitting", "leaving_out", "variants"]

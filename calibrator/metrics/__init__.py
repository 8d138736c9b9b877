"""Figures of a confidence, and how sure they are."""

__all__ = [
    "agreement",
    "correlation",
    "disagreement",
    "gains",
    "intervals",
    "metrics",
    "numbers",
    "rankings",
    "sampling",
    "validation",
]

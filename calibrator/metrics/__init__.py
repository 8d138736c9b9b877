"""The figures of a confidence, with their intervals and tests."""

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
    "workflows",
]

"""The figures of a confidence, with their intervals and tests."""

__all__ = [
    "agreement",
    "disagreement",
    "intervals",
    "metrics",
    "numbers",
    "rankings",
    "sampling",
    "workflows",
]

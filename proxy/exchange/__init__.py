"""What is known of one request and its answer, as values."""

__all__ = [
    "allowance",
    "answer",
    "call",
    "conversations",
    "exchange",
    "metrics",
    "openings",
    "outcome",
    "request",
    "series",
    "stream_results",
]

"""One request and its answer as data: what is told, logged, recorded and counted."""

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

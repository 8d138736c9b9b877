"""A request and its answer as data, for the response, the log, the record and the metrics.

`Outcome.headers` defines the headers of scored replies. Replies that are relayed without a score
get theirs from `passthrough/surfaces.py`, and errors from `proxy/errors.py`.
"""

__all__ = [
    "allowance",
    "answer",
    "call",
    "conversations",
    "exchange",
    "mcp_approvals",
    "metrics",
    "openings",
    "outcome",
    "request",
    "series",
    "stream_results",
]

"""One request and its answer as data: what is told, logged, recorded and counted.

A header of scored replies is a line in `Outcome.headers`; what is relayed unscored has its headers
from `passthrough/surfaces.py`. Errors have theirs from `proxy/errors.py`.
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

"""A request and its answer as data, for the response, the log, the record and the metrics.

`Outcome.headers` defines the headers of scored replies. Replies that are relayed without a score
get theirs from `completions/surfaces.py`, and errors from `proxy/errors.py`.
"""

__all__ = ["answer", "call", "exchange", "outcome", "polls", "request"]

"""Bytes, headers and JSON as values, and writes that leave together; no socket is opened here."""

__all__ = [
    "bounded_cache",
    "caller",
    "encoding",
    "headers",
    "http",
    "json_rewrite",
    "json_splice",
    "large_json",
    "outlet",
    "public_addresses",
    "session_cookie",
    "spelling",
    "sse",
    "worker_threads",
]

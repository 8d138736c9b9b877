"""HTTP requests, headers and JSON as plain values, and joined writes; nothing opens a socket."""

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
    "session_cookie",
    "spelling",
    "sse",
    "upstream",
    "worker_threads",
]

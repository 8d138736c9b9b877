"""Who may ask, how often, and from where."""

__all__ = [
    "client_keys",
    "host_check",
    "key_hash",
    "live_work",
    "rate_limits",
    "shared_buckets",
]

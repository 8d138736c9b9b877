"""Who may ask, how often, and from where.

These are the parts; `proxy/admission.py` puts them together and lets a request in.
"""

__all__ = [
    "host_check",
    "key_hash",
    "live_work",
    "rate_limits",
    "secret_keys",
    "shared_buckets",
]
